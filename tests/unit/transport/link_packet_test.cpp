#include "transport/control/link_packet.h"

#include <doctest/doctest.h>

#include <random>

#include "runtime/actor/wire.h"

using namespace baton;

namespace {

LinkPacket sample() {
  LinkPacket packet;
  packet.source_rank = 3;
  packet.target_rank = 400;
  packet.source = {1'700'000'000, 2};
  packet.target = {7, 1};
  packet.ack = uint64_t{1} << 40;
  packet.asks = true;
  return packet;
}

}  // namespace

TEST_CASE("a link header comes back as it was, and ignores fields that were appended later") {
  std::string bytes = encode_link_header(sample());
  for (const bool newer : {false, true}) {
    if (newer) {
      bytes[0] = static_cast<char>(bytes[0] + 1);  // a tenth field
      bytes += '\x05';
    }
    const LinkPacket back = *decode_link_header(bytes, {});
    CHECK(back.source_rank == 3);
    CHECK(back.target_rank == 400);
    CHECK(back.source == sample().source);
    CHECK(back.target == sample().target);
    CHECK(back.ack == sample().ack);
    CHECK(back.asks);
    CHECK_FALSE(back.mail.has_value());
  }
}

TEST_CASE("a header of another protocol, or without a life, is refused with a sentence") {
  std::string other;
  WireWriter writer(other);
  writer.array(9);
  writer.unsigned_integer(2);
  CHECK(decode_link_header(other + std::string(8, '\x01'), {}).error().text ==
        "link header: link protocol 2, this side speaks 1");
  LinkPacket lifeless = sample();
  lifeless.source.generation = 0;
  CHECK(decode_link_header(encode_link_header(lifeless), {}).error().text ==
        "link header: the sender's life has no generation");
}

TEST_CASE("100,000 damaged headers and envelopes are read or refused, never obeyed out of range") {
  std::mt19937_64 random(17);
  Envelope envelope;
  envelope.kind = MsgKind::adopt;
  envelope.trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  const std::string originals[] = {encode_link_header(sample()), encode_envelope(envelope)};
  size_t refused = 0;
  for (int i = 0; i < 100'000; ++i) {
    std::string bytes = originals[i % 2];
    for (uint64_t hits = 1 + random() % 4; hits > 0 && !bytes.empty(); --hits) {
      const size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0: bytes[at] = static_cast<char>(random()); break;
        case 1: bytes.resize(at); break;
        case 2: bytes.insert(at, 1, static_cast<char>(random())); break;
        case 3: bytes.insert(at, "\xdd\xff\xff\xff\xff"); break;
      }
    }
    const auto header = decode_link_header(bytes, {});
    const auto read = decode_envelope(bytes, {});
    if (header.ok()) CHECK(header->source.known());
    if (read.ok()) CHECK(msg_kind_known(static_cast<uint16_t>(read->kind)));
    if (!header.ok() && !read.ok()) ++refused;
  }
  CHECK(refused > 50'000);
}
