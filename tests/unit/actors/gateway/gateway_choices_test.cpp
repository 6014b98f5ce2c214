#include "tests/unit/actors/gateway/gateway_rig.h"

using namespace baton;
using namespace baton::test;

namespace {

const ActorId kClient = client_at(1);
const ActorId kAgain = client_at(2);

Submit several(uint32_t n) {
  Submit submit = GatewayRig::request();
  submit.n = n;
  return submit;
}

TokenEntry entry(RequestId id, uint32_t choice, uint32_t seq, TokenId token,
                 Finish finish = Finish::none, uint32_t epoch = 1) {
  TokenEntry e = GatewayRig::entry(id, seq, token, finish, epoch);
  e.choice = choice;
  e.kept = seq > 0;
  return e;
}

// What went to a client, by choice; each in order.
std::map<uint32_t, std::string> texts(GatewayRig& rig, ActorId client,
                                      std::map<uint32_t, uint32_t> next = {}) {
  std::map<uint32_t, std::string> all;
  while (auto part = rig.context.take<ClientTokens>(client)) {
    const ClientTokens& message = part->message;
    REQUIRE(message.seq == next[message.choice]);
    next[message.choice] += static_cast<uint32_t>(message.ids.size());
    all[message.choice] += message.text;
  }
  return all;
}

}  // namespace

TEST_CASE("T58, T60: each choice is a stream of its own, and all of them one result") {
  GatewayRig rig;
  rig.hello(kClient);
  rig.from(kClient, several(3));
  const auto admit = rig.context.expect<Admit>(GatewayRig::kScheduler);
  CHECK(admit.message.n == 3);
  const RequestId id = admit.envelope.request;
  rig.from(GatewayRig::kScheduler, Admitted{}, {.request = id, .epoch = Epoch{1}});
  rig.from(GatewayRig::kPrefill,
           Tokens{{entry(id, 0, 0, 'a'), entry(id, 1, 0, 'p'), entry(id, 2, 0, 'x')}});
  rig.from(GatewayRig::kDecode, Tokens{{entry(id, 2, 1, 'y', Finish::length)}});
  rig.from(GatewayRig::kDecode, Tokens{{entry(id, 0, 1, 'b'), entry(id, 1, 1, 'q')}});
  CHECK(rig.context.count<Done>() == 0);
  rig.from(GatewayRig::kDecode,
           Tokens{{entry(id, 0, 2, 'c'), entry(id, 1, 2, kEos, Finish::stop)}});
  CHECK(rig.context.count<Done>() == 0);
  rig.from(GatewayRig::kDecode, Tokens{{entry(id, 0, 3, 'd', Finish::length)}});
  CHECK(texts(rig, kClient) == std::map<uint32_t, std::string>{{0, "abcd"}, {1, "pq"}, {2, "xy"}});
  CHECK(rig.context.expect<Done>().message.completion_tokens == 9);
  rig.done_ack(id);
  const ClientDone done = rig.context.expect<ClientDone>(kClient).message;
  REQUIRE(done.choices.size() == 3);
  CHECK(done.choices[0].text == "abcd");
  CHECK(done.choices[1].ids == std::vector<TokenId>{'p', 'q', kEos});
  CHECK(done.choices[1].finish == Finish::stop);
  CHECK(done.choices[2].finish == Finish::length);
  CHECK(done.usage.completion_tokens == 9);
}

TEST_CASE("a stop string ends one choice, and its worker hears of it") {
  GatewayRig rig;
  rig.hello(kClient);
  Submit submit = several(2);
  submit.stop = {"END"};
  const RequestId id = rig.start(kClient, submit);
  rig.from(GatewayRig::kPrefill, Tokens{{entry(id, 0, 0, 'E'), entry(id, 1, 0, 'h')}});
  rig.from(GatewayRig::kDecode, Tokens{{entry(id, 0, 1, 'N'), entry(id, 1, 1, 'e')}});
  CHECK(rig.context.count<TokensAck>() == 0);
  rig.from(GatewayRig::kDecode, Tokens{{entry(id, 0, 2, 'D'), entry(id, 1, 2, 'y')}});
  const auto ack = rig.context.expect<TokensAck>(GatewayRig::kDecode);
  CHECK(ack.message.choice == 0);
  CHECK(ack.message.next == 3);
  CHECK(ack.message.ended);
  // A token that had left before is no token, and says that the worker goes on.
  rig.from(GatewayRig::kDecode, Tokens{{entry(id, 0, 3, 'z')}});
  CHECK(rig.context.expect<TokensAck>(GatewayRig::kDecode).message.ended);
  rig.from(GatewayRig::kDecode, Tokens{{entry(id, 1, 3, '!', Finish::length)}});
  CHECK(texts(rig, kClient) == std::map<uint32_t, std::string>{{0, ""}, {1, "hey!"}});
  rig.done_ack(id);
  const ClientDone done = rig.context.expect<ClientDone>(kClient).message;
  CHECK(done.choices[0].text.empty());
  CHECK(done.choices[0].finish == Finish::stop);
  CHECK(done.choices[1].text == "hey!");
}

TEST_CASE("a choice that ended with its first token is acknowledged where the others run") {
  GatewayRig rig;
  rig.hello(kClient);
  const RequestId id = rig.start(kClient, several(2));
  rig.from(GatewayRig::kPrefill,
           Tokens{{entry(id, 0, 0, kEos, Finish::stop), entry(id, 1, 0, 'a')}});
  CHECK(rig.context.count<TokensAck>() == 0);  // nobody is known who would keep it
  rig.from(GatewayRig::kDecode, Tokens{{entry(id, 1, 1, 'b')}});
  const auto ack = rig.context.expect<TokensAck>(GatewayRig::kDecode);
  CHECK(ack.message.choice == 0);
  CHECK(ack.message.next == 1);
  CHECK(!ack.message.ended);
}

TEST_CASE("T64: a freeze says of each choice what is committed, and which have ended") {
  GatewayRig rig;
  rig.hello(kClient);
  Submit submit = several(3);
  submit.stop = {"!"};
  const RequestId id = rig.start(kClient, submit);
  rig.from(GatewayRig::kPrefill,
           Tokens{{entry(id, 0, 0, 'a'), entry(id, 1, 0, 'b'), entry(id, 2, 0, 'c')}});
  rig.from(GatewayRig::kDecode, Tokens{{entry(id, 0, 1, '!'), entry(id, 1, 1, 'd')}});
  rig.from(GatewayRig::kScheduler, Freeze{"lost"}, {.request = id, .epoch = Epoch{2}});
  const Frozen frozen = rig.context.expect<Frozen>().message;
  CHECK(frozen.committed == std::vector<std::vector<TokenId>>{{'a', '!'}, {'b', 'd'}, {'c'}});
  CHECK(frozen.ended == std::vector<uint32_t>{0});
  CHECK(!frozen.complete);
  // The next life goes on with the others; its first tokens may come from decode.
  TokenEntry first = entry(id, 1, 2, 'e', Finish::none, 2);
  first.kept = true;
  rig.from(GatewayRig::kDecode2, Tokens{{first}});
  rig.from(GatewayRig::kDecode2, Tokens{{entry(id, 2, 2, 'z', Finish::none, 2)}});  // 1 is missing
  rig.context.advance(*rig.gateway, 300 * kMillisecond);
  const auto resend = rig.context.expect<Resend>(GatewayRig::kDecode2);
  CHECK(resend.message.choice == 2);
  CHECK(resend.message.next == 1);
  CHECK(texts(rig, kClient) == std::map<uint32_t, std::string>{{0, "a"}, {1, "bde"}, {2, "c"}});
}

TEST_CASE("a client that comes back fetches each choice from where it stands") {
  GatewayRig rig;
  const std::string token = rig.hello(kClient);
  const RequestId id = rig.start(kClient, several(2));
  rig.from(GatewayRig::kPrefill, Tokens{{entry(id, 0, 0, 'a'), entry(id, 1, 0, 'p')}});
  rig.from(GatewayRig::kDecode, Tokens{{entry(id, 0, 1, 'b'), entry(id, 1, 1, 'q')}});
  rig.from(GatewayRig::kDecode, Tokens{{entry(id, 0, 2, 'c')}});
  rig.from(kClient, ClientGone{"cut"});
  rig.hello(kAgain, token);
  rig.from(kAgain, Fetch{1, 2, {1}});
  CHECK(texts(rig, kAgain, {{0, 2}, {1, 1}}) ==
        std::map<uint32_t, std::string>{{0, "c"}, {1, "q"}});
  rig.from(kAgain, Fetch{1, 0, {}});  // from an older client: all of it again
  CHECK(texts(rig, kAgain) == std::map<uint32_t, std::string>{{0, "abc"}, {1, "pq"}});
}

TEST_CASE("promise 12: acknowledgements count for the choice that they name") {
  Limits limits;
  limits.stream_bytes_max = 400;
  GatewayRig rig(limits);
  rig.hello(kClient);
  const RequestId id = rig.start(kClient, several(2));
  uint32_t seq = 0;
  const auto both = [&] {
    rig.from(GatewayRig::kDecode, Tokens{{entry(id, 0, seq, 'a'), entry(id, 1, seq, 'b')}});
    ++seq;
  };
  while (seq < 10) both();
  std::map<uint32_t, uint32_t> got;
  const auto read = [&] {
    while (auto part = rig.context.take<ClientTokens>(kClient)) {
      got[part->message.choice] =
          part->message.seq + static_cast<uint32_t>(part->message.ids.size());
    }
  };
  read();
  const uint32_t before = got[0] + got[1];
  CHECK(before < 20);
  rig.from(kClient, ClientAck{1, got[0], false, {}});  // half of what it has
  read();
  CHECK(got[0] + got[1] > before);
  rig.from(kClient, ClientAck{1, got[0], false, {got[1]}});
  read();
  rig.from(kClient, ClientAck{1, got[0], false, {got[1]}});
  read();
  CHECK(got[0] == 10);
  CHECK(got[1] == 10);
}
