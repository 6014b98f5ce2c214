#include <string>
#include <vector>

#include "tests/unit/actors/gateway/gateway_rig.h"

using namespace baton;
using namespace baton::test;

namespace {

const ActorId kClient = client_at(1);
const ActorId kOther = client_at(2);

Limits tight() {
  Limits limits;
  limits.stream_bytes_max = 1000;
  limits.stream_ahead_max = 32;  // so workers hear of every 8 tokens
  return limits;
}

}  // namespace

TEST_CASE(
    "a reader that acknowledges nothing is sent no more than the limit, and its slot pauses") {
  GatewayRig rig(tight());
  rig.hello(kClient);
  Submit submit = rig.request();
  submit.max_tokens = 100;
  const RequestId id = rig.start(kClient, submit);
  rig.text(id, 0, std::string(60, 'a'));
  size_t acks = rig.context.count<TokensAck>();
  CHECK(acks < 7);
  const auto streamed = rig.streamed(kClient);
  CHECK(streamed.messages <= 1000 / 64 + 1);
  CHECK(streamed.ids.size() < 60);
  const auto had = static_cast<uint32_t>(streamed.ids.size());
  rig.context.forget_sent();
  rig.from(kClient, ClientAck{1, had, false});  // it reads on
  CHECK(rig.streamed(kClient, 1, had).ids.size() == 60 - had);
  CHECK(rig.context.expect<TokensAck>(GatewayRig::kDecode).message.next == 60);
  rig.context.advance(*rig.gateway, 2 * Limits{}.slow_reader_us);  // its stall is over
  CHECK(rig.context.count<Cancel>() == 0);
}

TEST_CASE("promise 12: a reader that stays slow is cancelled, others notice nothing") {
  const Limits limits = tight();
  GatewayRig rig(limits);
  rig.hello(kClient);
  rig.hello(kOther);
  Submit submit = rig.request();
  submit.max_tokens = 100;
  const RequestId slow = rig.start(kClient, submit);
  const RequestId fast = rig.start(kOther, submit);
  for (uint32_t seq = 0; seq < 60; ++seq) {
    rig.from(GatewayRig::kDecode, Tokens{{rig.entry(slow, seq, 's'), rig.entry(fast, seq, 'f')}});
    rig.from(kOther, ClientAck{1, seq + 1, false});
  }
  CHECK(rig.streamed(kOther).ids.size() == 60);
  const auto had = static_cast<uint32_t>(rig.streamed(kClient).ids.size());
  CHECK(had < 60);
  rig.context.advance(*rig.gateway, limits.slow_reader_us - 1);
  CHECK(rig.context.count<Cancel>() == 0);
  rig.context.advance(*rig.gateway, 1);
  CHECK(rig.context.expect<Cancel>(GatewayRig::kScheduler).envelope.request == slow);
  const auto end = rig.context.expect<ClientRefused>(kClient);
  CHECK(end.message.refusal.code == ErrorCode::cancelled);
  CHECK(end.message.refusal.text.find("read nothing for 30000 ms") != std::string::npos);
  CHECK(rig.context.count<ClientTokens>(kClient) == 0);
  CHECK(rig.gateway->counters().slow_readers == 1);
  rig.token(fast, 60, kEos, Finish::stop);
  rig.done_ack(fast);
  CHECK(rig.context.count<ClientDone>(kOther) == 1);
}

TEST_CASE(
    "a slow reader's finished job is delivered when it reads, or without its stream at last") {
  GatewayRig rig(tight());
  rig.hello(kClient);
  for (const bool reads : {true, false}) {
    CAPTURE(reads);
    Submit submit = rig.request(reads ? 1 : 2);
    submit.max_tokens = 100;
    const RequestId id = rig.start(kClient, submit);
    rig.text(id, 0, std::string(60, 'a'), Finish::length);
    rig.done_ack(id);
    CHECK(rig.gateway->live_requests() == 0);
    CHECK(rig.context.count<ClientDone>() == 0);  // not before what comes first
    const auto had = static_cast<uint32_t>(rig.streamed(kClient, submit.job).ids.size());
    if (reads) {
      rig.from(kClient, ClientAck{submit.job, had, false});
      CHECK(rig.streamed(kClient, submit.job, had).ids.size() == 60 - had);
      rig.from(kClient, ClientAck{submit.job, 60, false});
    } else {
      rig.context.advance(*rig.gateway, Limits{}.slow_reader_us);
    }
    CHECK(rig.context.expect<ClientDone>(kClient).message.choices[0].ids.size() == 60);
  }
}

TEST_CASE("a client that wants no stream is never slow") {
  GatewayRig rig(tight());
  rig.hello(kClient);
  Submit submit = rig.request();
  submit.max_tokens = 100;
  submit.stream = false;
  const RequestId id = rig.start(kClient, submit);
  rig.text(id, 0, std::string(90, 'a'), Finish::length);
  CHECK(rig.context.count<TokensAck>() == 12);  // after 8, 16, ... 88, and at the end
  CHECK(rig.context.count<ClientTokens>() == 0);
  rig.done_ack(id);
  const ClientDone done = rig.context.expect<ClientDone>(kClient).message;
  CHECK(done.choices[0].text == std::string(90, 'a'));
}

TEST_CASE("a client that reconnects and fetches nothing is slow, too") {
  GatewayRig rig(tight());
  const std::string token = rig.hello(kClient);
  const RequestId id = rig.start(kClient, rig.request());
  rig.hello(kOther, token);
  rig.token(id, 0, 'a');
  rig.context.advance(*rig.gateway, Limits{}.slow_reader_us);
  CHECK(rig.context.expect<ClientRefused>(kOther).message.refusal.code == ErrorCode::cancelled);
  CHECK(rig.context.count<Cancel>() == 1);
}

TEST_CASE("a client that cancels what it did not read hears of the end at once") {
  GatewayRig rig(tight());
  const std::string token = rig.hello(kClient);
  Submit submit = rig.request();
  submit.max_tokens = 100;
  const RequestId id = rig.start(kClient, submit);
  rig.text(id, 0, std::string(60, 'a'));
  CHECK(rig.streamed(kClient).ids.size() < 60);
  rig.from(kClient, ClientCancel{1});
  CHECK(rig.context.expect<ClientRefused>(kClient).message.refusal.code == ErrorCode::cancelled);
  rig.start(kClient, rig.request(2));
  rig.hello(kOther, token);
  rig.from(kOther, ClientCancel{2});  // without Fetch, after a reconnect
  CHECK(rig.context.expect<ClientRefused>(kOther).message.job == 2);
  CHECK(rig.context.count<ClientTokens>() == 0);
  CHECK(rig.gateway->live_requests() == 0);
}

TEST_CASE("results are kept for Fetch until acknowledged, crowded out or too old") {
  Limits limits;
  limits.results_kept_max = 3;
  GatewayRig rig(limits);
  rig.hello(kClient);
  const auto run = [&](uint64_t job) {
    const RequestId id = rig.start(kClient, rig.request(job));
    rig.text(id, 0, "ab", Finish::length);
    rig.done_ack(id);
    CHECK(rig.streamed(kClient, job).text == "ab");
    rig.context.expect<ClientDone>(kClient);
    rig.context.forget_sent();
  };
  const auto gone = [&](uint64_t job) {
    rig.from(kClient, Fetch{job, 0});
    CHECK(rig.context.expect<ClientRefused>(kClient).message.refusal.code == ErrorCode::not_found);
  };
  run(1);
  rig.from(kClient, Fetch{1, 1});
  CHECK(rig.streamed(kClient, 1, 1).text == "b");
  CHECK(rig.context.expect<ClientDone>(kClient).message.choices[0].text == "ab");
  rig.from(kClient, ClientAck{1, 2, true});
  gone(1);
  for (uint64_t job = 2; job <= 5; ++job) run(job);
  CHECK(rig.gateway->kept_results() == 3);
  gone(2);
  rig.context.advance(*rig.gateway, limits.results_ttl_us - 1);
  rig.from(kClient, Fetch{3, 0});
  CHECK(rig.context.count<ClientDone>() == 1);
  rig.context.advance(*rig.gateway, 1);
  CHECK(rig.gateway->kept_results() == 0);
  gone(3);
  CHECK(rig.context.timers_pending() == 0);
}

TEST_CASE("results are bounded in bytes as well") {
  Limits limits;
  limits.results_bytes_max = 20'000;
  GatewayRig rig(limits);
  rig.hello(kClient);
  for (uint64_t job = 1; job <= 100; ++job) {
    Submit submit = rig.request(job);
    submit.ids.assign(100, 'a');
    submit.max_tokens = 1;
    const RequestId id = rig.start(kClient, submit);
    rig.token(id, 0, 'b', Finish::length);
    rig.done_ack(id);
    rig.context.forget_sent();
  }
  CHECK(rig.gateway->kept_results() >= 5);
  CHECK(rig.gateway->kept_results() <= 30);
}
