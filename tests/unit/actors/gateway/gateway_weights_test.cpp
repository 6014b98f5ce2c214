// What the gateway has to do with versions of the weights: results name them, and updates pass.

#include "tests/unit/actors/gateway/gateway_rig.h"

#include <doctest/doctest.h>

namespace baton::test {
namespace {

const ActorId kClient = client_at(7);

TokenEntry of_version(TokenEntry entry, uint64_t version) {
  entry.weights_version = version;
  return entry;
}

TEST_CASE("a result names the versions that its tokens come from, as the stream committed them") {
  GatewayRig rig;
  rig.hello(kClient);
  Submit submit = rig.request();
  submit.sampling.prompt_logprobs = 0;
  const RequestId id = rig.start(kClient, submit);
  PromptScores scores;
  scores.logprobs = {-1.0f};
  scores.weights_version = 4;
  rig.from(GatewayRig::kPrefill, scores, {.request = id, .epoch = Epoch{1}});
  rig.from(GatewayRig::kPrefill, Tokens{{of_version(rig.entry(id, 0, 'a'), 4)}});
  rig.from(GatewayRig::kDecode, Tokens{{of_version(rig.entry(id, 1, 'b'), 4)}});
  // Other weights: the scheduler freezes the stream; what an old life still says does not count.
  rig.from(GatewayRig::kScheduler, Freeze{}, {.request = id, .epoch = Epoch{2}});
  CHECK(rig.context.expect<Frozen>().message.committed[0].size() == 2);
  rig.from(GatewayRig::kDecode, Tokens{{of_version(rig.entry(id, 2, 'x'), 4)}});
  rig.from(GatewayRig::kPrefill, Tokens{{of_version(rig.entry(id, 2, 'c', Finish::none, 2), 5)}});
  rig.from(GatewayRig::kDecode, Tokens{{of_version(rig.entry(id, 3, 'd', Finish::stop, 2), 5)}});
  // The usage record is an earlier life's; the stream knows better.
  Usage usage;
  usage.weights_version = 4;
  rig.done_ack(id, usage, 2);
  const Usage& result = rig.context.expect<ClientDone>(kClient).message.usage;
  CHECK(result.weights == std::vector<WeightsSpan>{{4, 0, 0}, {5, 2, 0}});
  CHECK(result.weights_version == 5);
  CHECK(result.prompt_weights == 4);
}

UpdateWeights ask(const std::string& token = "t") {
  UpdateWeights ask;
  ask.token = token;
  ask.source.path = "/w2";
  ask.policy = WeightsPolicy::resume;
  return ask;
}

UpdateReport report(UpdatePhase phase, bool last, const std::string& token = "t") {
  UpdateReport report;
  report.token = token;
  report.phase = phase;
  report.last = last;
  return report;
}

TEST_CASE(
    "an update passes to the scheduler, and its reports to whoever asked, without a session") {
  GatewayRig rig;
  rig.from(kClient, ask(), {.correlation = 55});
  const Sent<UpdateWeights> sent = rig.context.expect<UpdateWeights>(GatewayRig::kScheduler);
  CHECK(sent.message.source.path == "/w2");
  CHECK(sent.message.policy == WeightsPolicy::resume);
  const Routing answer{.correlation = sent.envelope.correlation};
  rig.from(GatewayRig::kScheduler, report(UpdatePhase::preparing, false), answer);
  CHECK(rig.context.expect<UpdateReport>(kClient).envelope.correlation == 55);
  rig.from(GatewayRig::kScheduler, report(UpdatePhase::retiring, true), answer);
  CHECK(rig.context.expect<UpdateReport>(kClient).message.last);
  rig.from(GatewayRig::kScheduler, report(UpdatePhase::idle, true), answer);
  CHECK(rig.context.count<UpdateReport>() == 0);  // nobody asked for more
}

TEST_CASE("an update of a scheduler that starts over, or is overloaded, ends with a sentence") {
  GatewayRig rig;
  rig.from(kClient, ask(), {.correlation = 55});
  const uint64_t first = rig.context.expect<UpdateWeights>().envelope.correlation;
  Undeliverable lost;
  lost.target = {0, kSchedulerSlot, 1};
  lost.message_kind = static_cast<uint16_t>(MsgKind::update_weights);
  lost.full = true;
  rig.from(GatewayRig::kScheduler, lost, {.correlation = first});
  const UpdateReport busy = rig.context.expect<UpdateReport>(kClient).message;
  CHECK(busy.last);
  CHECK(busy.refusal.code == ErrorCode::busy);
  rig.from(kClient, ask("u"), {.correlation = 56});
  rig.from(GatewayRig::kScheduler, ActorDown{{0, kSchedulerSlot, 1}, "it broke"});
  const Sent<UpdateReport> down = rig.context.expect<UpdateReport>(kClient);
  CHECK(down.envelope.correlation == 56);
  CHECK(down.message.refusal.code == ErrorCode::unavailable);
  CHECK(down.message.token == "u");
}

TEST_CASE("clients cannot report, and workers cannot ask") {
  GatewayRig rig;
  rig.from(GatewayRig::kDecode, ask());
  CHECK(rig.context.count<UpdateWeights>() == 0);
  rig.from(kClient, ask(), {.correlation = 55});
  const uint64_t id = rig.context.expect<UpdateWeights>().envelope.correlation;
  rig.from(client_at(8), report(UpdatePhase::failed, true), {.correlation = id});
  CHECK(rig.context.count<UpdateReport>() == 0);
}

}  // namespace
}  // namespace baton::test
