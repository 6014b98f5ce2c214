#include <string>
#include <vector>

#include "tests/unit/actors/gateway/gateway_rig.h"

using namespace baton;
using namespace baton::test;

namespace {

const ActorId kClient = client_at(1);
constexpr ActorId kNewPrefill{4, kPrefillSlot, 1};

void freeze(GatewayRig& rig, RequestId id, uint32_t epoch) {
  rig.from(GatewayRig::kScheduler, Freeze{"decode rank 2 is down"},
           {.request = id, .epoch = Epoch{epoch}});
}

}  // namespace

TEST_CASE("T65: a decode rank dies, the stream is frozen and goes on elsewhere without a seam") {
  GatewayRig rig;
  rig.hello(kClient);
  Submit submit = rig.request();
  submit.stop = {"END"};
  const RequestId id = rig.start(kClient, submit);
  rig.text(id, 0, "caf\xC3");
  rig.from(GatewayRig::kScheduler, PeerDown{2, 1});  // by itself this changes nothing
  freeze(rig, id, 2);
  const auto frozen = rig.context.expect<Frozen>(GatewayRig::kScheduler);
  CHECK(frozen.envelope.epoch == Epoch{2});
  CHECK(frozen.message.committed == std::vector<std::vector<TokenId>>{{'c', 'a', 'f', 0xC3}});
  CHECK_FALSE(frozen.message.complete);
  rig.token(id, 4, 'X');  // of the life that is over: fenced off
  rig.text(id, 4, "\xA9 E", Finish::none, 2, GatewayRig::kDecode2);
  freeze(rig, id, 3);
  CHECK(rig.context.expect<Frozen>().message.committed[0].size() == 7);
  rig.text(id, 7, "ND!", Finish::none, 3, GatewayRig::kDecode2);
  const auto streamed = rig.streamed(kClient);
  CHECK(streamed.text == "caf\xC3\xA9 ");
  CHECK(streamed.ids.size() == 9);
  const auto done = rig.context.expect<Done>();
  CHECK(done.message.outcome == Finish::stop);
  CHECK(done.message.completion_tokens == 9);
  CHECK(done.envelope.epoch == Epoch{3});
  rig.done_ack(id, {}, 3);
  CHECK(rig.context.expect<ClientDone>(kClient).message.choices[0].text == "caf\xC3\xA9 ");
  CHECK(rig.gateway->counters().tokens_stale == 1);
  CHECK(rig.gateway->counters().tokens_late == 1);
}

TEST_CASE(
    "freezes that are repeated, late, or of a request that has ended are answered or fenced") {
  GatewayRig rig;
  rig.hello(kClient);
  const RequestId id = rig.start(kClient, rig.request());
  rig.text(id, 0, "ab");
  freeze(rig, id, 2);
  freeze(rig, id, 2);
  CHECK(rig.context.count<Frozen>() == 2);
  freeze(rig, id, 1);
  CHECK(rig.context.count<Frozen>() == 2);
  rig.text(id, 2, "c", Finish::length, 2);
  rig.context.forget_sent();
  freeze(rig, id, 3);  // crossed with Done: the scheduler may have dropped it as stale
  CHECK(rig.context.expect<Frozen>().message.complete);
  CHECK(rig.context.expect<Done>().envelope.epoch == Epoch{3});
  rig.done_ack(id, {}, 3);
  freeze(rig, id, 4);
  CHECK(rig.context.count<Frozen>() == 0);
  const auto cancel = rig.context.expect<Cancel>(GatewayRig::kScheduler);
  CHECK(cancel.envelope.epoch == Epoch{4});
  CHECK(cancel.envelope.request == id);
}

TEST_CASE("a request that is queued anew without a freeze goes on under its new epoch") {
  GatewayRig rig;
  rig.hello(kClient);
  const RequestId id = rig.start(kClient, rig.request());
  rig.token(id, 0, 'a', Finish::none, 2);  // overtakes the scheduler's word
  CHECK(rig.context.count<ClientTokens>() == 0);
  rig.from(GatewayRig::kScheduler, Admitted{}, {.request = id, .epoch = Epoch{2}});
  CHECK(rig.streamed(kClient).text == "a");
  CHECK(rig.context.count<Accepted>() == 0);  // said once
  rig.from(GatewayRig::kScheduler, Admitted{}, {.request = id, .epoch = Epoch{1}});
  rig.token(id, 1, 'b', Finish::none, 2);
  CHECK(rig.streamed(kClient, 1, 1).text == "b");
}

TEST_CASE("a gap is asked for after 200 ms, from the one who keeps what is missing") {
  GatewayRig rig;
  rig.hello(kClient);
  const RequestId id = rig.start(kClient, rig.request());
  rig.token(id, 1, 'b');  // prefill died with seq 0 unsent
  rig.context.advance(*rig.gateway, 199 * kMillisecond);
  CHECK(rig.context.count<Resend>() == 0);
  rig.context.advance(*rig.gateway, kMillisecond);
  auto resend = rig.context.expect<Resend>(GatewayRig::kDecode);
  CHECK(resend.message.next == 0);
  CHECK(resend.envelope.request == id);
  CHECK(resend.envelope.epoch == Epoch{1});
  rig.context.advance(*rig.gateway, 200 * kMillisecond);
  CHECK(rig.context.count<Resend>() == 1);  // again, until it comes
  rig.context.forget_sent();
  rig.text(id, 0, "ab");
  CHECK(rig.streamed(kClient).text == "ab");
  rig.context.advance(*rig.gateway, kSecond);
  CHECK(rig.context.count<Resend>() == 0);
  CHECK(rig.gateway->counters().tokens_duplicate == 1);
  rig.token(id, 3, 'd');  // a short gap closes by itself
  rig.context.advance(*rig.gateway, 100 * kMillisecond);
  rig.token(id, 2, 'c');
  rig.token(id, 5, 'f');
  rig.context.advance(*rig.gateway, 150 * kMillisecond);
  CHECK(rig.context.count<Resend>() == 0);
  rig.context.advance(*rig.gateway, 50 * kMillisecond);
  CHECK(rig.context.expect<Resend>().message.next == 4);
}

TEST_CASE("workers hear of every 32 tokens and of the end") {
  GatewayRig rig;
  rig.hello(kClient);
  Submit submit = rig.request();
  submit.max_tokens = 100;
  const RequestId id = rig.start(kClient, submit);
  rig.token(id, 0, 'a', Finish::none, 1, GatewayRig::kPrefill);
  rig.text(id, 1, std::string(30, 'a'));
  CHECK(rig.context.count<TokensAck>() == 0);
  rig.token(id, 31, 'a');
  const auto ack = rig.context.expect<TokensAck>(GatewayRig::kDecode);
  CHECK(ack.message.next == 32);
  CHECK(ack.envelope.request == id);
  CHECK(ack.envelope.epoch == Epoch{1});
  rig.text(id, 32, "abc", Finish::stop);
  CHECK(rig.context.expect<TokensAck>(GatewayRig::kDecode).message.next == 35);
}

TEST_CASE("T89: stop strings work on prompts of ids, and end the request for everybody") {
  GatewayRig rig;
  rig.hello(kClient);
  Submit submit = rig.request();
  submit.stop = {"\n\n"};
  const RequestId id = rig.start(kClient, submit);
  rig.text(id, 0, "a\nb\n");
  CHECK(rig.streamed(kClient).text == "a\nb");  // the second line feed is held back
  rig.token(id, 4, '\n');
  const auto done = rig.context.expect<Done>(GatewayRig::kScheduler);  // it cancels the workers
  CHECK(done.message.outcome == Finish::stop);
  rig.token(id, 5, 'x');
  rig.done_ack(id);
  const ClientDone result = rig.context.expect<ClientDone>(kClient).message;
  CHECK(result.choices[0].text == "a\nb");
  CHECK(result.choices[0].finish == Finish::stop);
  CHECK(result.usage.completion_tokens == 5);
}

TEST_CASE("T90: a request that fills the context ends with length, the others go on") {
  GatewayRig rig;
  rig.hello(kClient);
  const RequestId full = rig.start(kClient, rig.request(1));
  const RequestId other = rig.start(kClient, rig.request(2));
  rig.from(GatewayRig::kDecode,
           Tokens{{rig.entry(full, 0, 'a', Finish::length), rig.entry(other, 0, 'b')}});
  rig.done_ack(full);
  CHECK(rig.context.expect<ClientDone>(kClient).message.choices[0].finish == Finish::length);
  rig.token(other, 1, 'c');
  CHECK(rig.streamed(kClient, 2).text == "bc");
  CHECK(rig.gateway->live_requests() == 1);
}

TEST_CASE("text that could begin a stop string is sent when the request ends without it") {
  GatewayRig rig;
  rig.hello(kClient);
  Submit submit = rig.request();
  submit.stop = {"xyz"};
  const RequestId id = rig.start(kClient, submit);
  rig.text(id, 0, "axy", Finish::length);
  CHECK(rig.streamed(kClient).text == "axy");
}

TEST_CASE("prompt log-probabilities come with the result, once, whatever the epoch says") {
  GatewayRig rig;
  rig.hello(kClient);
  Submit submit = rig.request();
  submit.sampling.prompt_logprobs = 1;
  submit.sampling.top_logprobs = 1;
  const RequestId id = rig.start(kClient, submit);
  const PromptScores scores{{-3}, {{{'i', -3}, {'o', -4}}}};
  rig.from(GatewayRig::kPrefill, scores, {.request = id, .epoch = Epoch{1}});
  freeze(rig, id, 2);
  rig.from(GatewayRig::kPrefill, PromptScores{{-9}, {}}, {.request = id, .epoch = Epoch{1}});
  rig.from(kNewPrefill, scores, {.request = id, .epoch = Epoch{2}});
  TokenEntry end = rig.entry(id, 0, 'y', Finish::length, 2);
  end.top = {{'y', -0.25f}};
  rig.from(kNewPrefill, Tokens{{end}});
  const ClientTokens part = rig.context.expect<ClientTokens>(kClient).message;
  CHECK(part.top.at(0).at(0).logprob == -0.25f);
  rig.done_ack(id, {}, 2);
  const ClientDone done = rig.context.expect<ClientDone>(kClient).message;
  CHECK(done.prompt_logprobs == std::vector<float>{-3});
  REQUIRE(done.prompt_top.size() == 1);
  CHECK(done.prompt_top[0][1].id == 'o');
  CHECK(done.choices[0].top.at(0).at(0).id == 'y');
}

TEST_CASE("log-probabilities that do not fit the prompt, and tokens that do not exist, end it") {
  GatewayRig rig;
  rig.hello(kClient);
  Submit submit = rig.request();
  submit.sampling.prompt_logprobs = 1;
  const RequestId scored = rig.start(kClient, submit);
  rig.from(GatewayRig::kPrefill, PromptScores{{-1, -2, -3}, {}},
           {.request = scored, .epoch = Epoch{1}});
  CHECK(rig.context.expect<ClientRefused>(kClient).message.refusal.code == ErrorCode::internal);
  const RequestId odd = rig.start(kClient, rig.request(2));
  rig.from(GatewayRig::kDecode, Tokens{{rig.entry(odd, 0, kVocabulary), rig.entry(odd, 1, 'a')}});
  CHECK(rig.context.expect<ClientRefused>(kClient).message.job == 2);
  CHECK(rig.context.count<Cancel>(GatewayRig::kScheduler) == 2);
  CHECK(rig.gateway->live_requests() == 0);
}

TEST_CASE("a scheduler that does not acknowledge Done in time does not keep the result back") {
  GatewayRig rig;
  rig.hello(kClient);
  const RequestId id = rig.start(kClient, rig.request());
  rig.token(id, 0, kEos, Finish::stop);
  CHECK(rig.context.count<ClientDone>() == 0);
  rig.context.advance(*rig.gateway, 500 * kMillisecond);
  CHECK(rig.context.expect<ClientDone>(kClient).message.usage.prompt_tokens == 2);
  rig.done_ack(id);
  CHECK(rig.context.count<ClientDone>() == 0);
}
