#include "transport/control/link_packet.h"

#include "runtime/actor/wire.h"

namespace baton {
namespace {

constexpr uint64_t kLinkProtocol = 1;
constexpr size_t kHeaderFields = 9;

void put_life(WireWriter& w, LinkLife life) {
  w.unsigned_integer(life.incarnation);
  w.unsigned_integer(life.generation);
}

LinkLife get_life(WireReader& r) {
  LinkLife life;
  life.incarnation = static_cast<uint32_t>(r.unsigned_integer(UINT32_MAX));
  life.generation = static_cast<uint32_t>(r.unsigned_integer(UINT32_MAX));
  return life;
}

}  // namespace

std::string encode_link_header(const LinkPacket& packet) {
  std::string out;
  WireWriter w(out);
  w.array(kHeaderFields);
  w.unsigned_integer(kLinkProtocol);
  w.unsigned_integer(packet.source_rank);
  w.unsigned_integer(packet.target_rank);
  put_life(w, packet.source);
  put_life(w, packet.target);
  w.unsigned_integer(packet.ack);
  w.boolean(packet.asks);
  return out;
}

Result<LinkPacket> decode_link_header(std::string_view bytes, const Limits& limits) {
  WireReader r(bytes, limits);
  LinkPacket packet;
  if (r.enter_array() < kHeaderFields) r.fail("a link header has 9 fields");
  const uint64_t version = r.unsigned_integer(UINT32_MAX);
  if (r.ok() && version != kLinkProtocol) {
    r.fail("link protocol " + std::to_string(version) + ", this side speaks 1");
  }
  packet.source_rank = static_cast<uint32_t>(r.unsigned_integer(UINT32_MAX));
  packet.target_rank = static_cast<uint32_t>(r.unsigned_integer(UINT32_MAX));
  packet.source = get_life(r);
  packet.target = get_life(r);
  packet.ack = r.unsigned_integer(UINT64_MAX);
  packet.asks = r.boolean();
  r.leave();
  if (r.ok() && !packet.source.known()) r.fail("the sender's life has no generation");
  if (!r.ok()) return Error{ErrorCode::bad_frame, "link header: " + r.error()};
  return packet;
}

}  // namespace baton
