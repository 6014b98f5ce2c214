#include <string>
#include <vector>

#include "tests/unit/actors/gateway/gateway_rig.h"

using namespace baton;
using namespace baton::test;

namespace {

const ActorId kClient = client_at(1);
const ActorId kAgain = client_at(2);  // the same client on its next connection
const Limits kLimits;

}  // namespace

TEST_CASE("hello opens a session that describes the model; jobs without one are refused") {
  GatewayRig rig;
  rig.from(kClient, rig.request());
  const auto refusal = rig.context.expect<ClientRefused>(kClient);
  CHECK(refusal.message.refusal.code == ErrorCode::not_found);
  rig.from(kClient, ModelQuery{}, {.correlation = 9});
  const auto model = rig.context.expect<ModelReply>(kClient);
  CHECK(model.envelope.correlation == 9);
  CHECK(model.message.model == "bytes");
  CHECK(model.message.vocabulary == kVocabulary);
  CHECK(model.message.context_max == kContextMax);
  CHECK(model.message.eos_ids == std::vector<TokenId>{kEos});
  const std::string token = rig.hello(kClient);
  CHECK(token.size() == 32);
  CHECK(rig.hello(kClient, token) == token);
  CHECK(rig.hello(kAgain) != token);
  rig.from(kClient, ClientBeat{7});
  CHECK(rig.context.expect<ClientBeat>(kClient).message.seq == 7);
  CHECK(rig.gateway->sessions() == 2);
}

TEST_CASE("a client that comes back within its grace fetches its stream from where it was") {
  GatewayRig rig;
  const std::string token = rig.hello(kClient);
  const RequestId id = rig.start(kClient, rig.request());
  rig.text(id, 0, "h\xC3\xA9 ");
  CHECK(rig.streamed(kClient).ids.size() == 4);
  rig.from(kClient, ClientGone{});
  rig.text(id, 4, "wo");
  CHECK(rig.context.count<ClientTokens>() == 0);
  rig.context.advance(*rig.gateway, kLimits.client_grace_us - 1);
  CHECK(rig.hello(kAgain, token) == token);
  rig.context.advance(*rig.gateway, kSecond);
  rig.text(id, 6, "r");
  CHECK(rig.context.count<ClientTokens>() == 0);  // it has not said yet where it is
  rig.from(kAgain, Fetch{1, 2});                  // it got "h" and half a character
  const auto rest = rig.streamed(kAgain, 1, 2);
  CHECK(rest.text == "\xC3\xA9 wor");  // exactly what followed
  rig.text(id, 7, "ld", Finish::length);
  rig.done_ack(id);
  CHECK(rig.streamed(kAgain, 1, 7).text == "ld");
  CHECK(rig.context.expect<ClientDone>(kAgain).message.choices[0].text == "h\xC3\xA9 world");
  CHECK(rig.context.count<Cancel>() == 0);
  CHECK(rig.gateway->counters().reconnects == 1);
}

TEST_CASE("the new connection may come before the old one's end is known, and wins") {
  GatewayRig rig;
  const std::string token = rig.hello(kClient);
  const RequestId id = rig.start(kClient, rig.request());
  rig.hello(kAgain, token);
  rig.from(kClient, ClientGone{"late"});
  rig.context.advance(*rig.gateway, kSecond);
  CHECK(rig.context.count<Cancel>() == 0);
  rig.token(id, 0, 'a');
  rig.from(kAgain, Fetch{1, 0});
  CHECK(rig.context.expect<Accepted>(kAgain).message.request == id);
  CHECK(rig.streamed(kAgain).text == "a");
  rig.from(kClient, ClientCancel{1});  // the old connection has no session any more
  CHECK(rig.context.expect<ClientRefused>(kClient).message.refusal.code == ErrorCode::not_found);
  CHECK(rig.gateway->live_requests() == 1);
}

TEST_CASE("T15, T17: the jobs of a client that is gone are cancelled once its grace has passed") {
  GatewayRig rig;
  const std::string token = rig.hello(kClient);
  const RequestId id = rig.start(kClient, rig.request(1));
  rig.start(kClient, rig.request(2));
  rig.token(id, 0, 'a');
  rig.from(kClient, ClientGone{});
  rig.context.advance(*rig.gateway, kLimits.client_grace_us);
  CHECK(rig.context.count<Cancel>(GatewayRig::kScheduler) == 2);
  CHECK(rig.gateway->live_requests() == 0);
  // It hears what became of them when it comes back after all, as long as results are kept.
  CHECK(rig.hello(kAgain, token) == token);
  rig.from(kAgain, Fetch{1, 0});
  CHECK(rig.context.expect<ClientRefused>(kAgain).message.refusal.code == ErrorCode::cancelled);
  rig.from(kAgain, ClientGone{});
  rig.context.advance(*rig.gateway, kLimits.results_ttl_us + kSecond);
  CHECK(rig.gateway->kept_results() == 0);
  CHECK(rig.gateway->sessions() == 0);
}

TEST_CASE("T15: a thousand aborted streams leave nothing behind") {
  GatewayRig rig;
  for (uint32_t i = 0; i < 1000; ++i) {
    const ActorId client = client_at(i + 1);
    rig.hello(client);
    const RequestId id = rig.start(client, rig.request());
    if (i % 2) rig.token(id, 0, 'a');
    rig.from(client, ClientGone{});
    rig.context.advance(*rig.gateway, kLimits.client_grace_us);
    CHECK(rig.context.expect<Cancel>(GatewayRig::kScheduler).envelope.request == id);
    rig.context.forget_sent();
  }
  CHECK(rig.gateway->live_requests() == 0);
  CHECK(rig.gateway->sessions() <= kLimits.clients_max);
  rig.context.advance(*rig.gateway, kLimits.results_ttl_us);
  CHECK(rig.gateway->sessions() == 0);
  CHECK(rig.gateway->kept_results() == 0);
  CHECK(rig.context.timers_pending() == 0);
}

TEST_CASE("T17, T18: cancelling works in every state and ends the job with one event") {
  GatewayRig rig;
  rig.hello(kClient);
  const auto cancelled = [&] {
    rig.from(kClient, ClientCancel{1});
    const auto end = rig.context.expect<ClientRefused>(kClient);
    CHECK(end.message.refusal.code == ErrorCode::cancelled);
    CHECK(rig.gateway->live_requests() == 0);
    rig.from(kClient, ClientCancel{1});  // again: nothing
    CHECK(rig.context.count<ClientRefused>() == 0);
    rig.from(kClient, ClientAck{1, 0, true});
    CHECK(rig.gateway->kept_results() == 0);
  };
  // Preparing: the scheduler never hears of it.
  Submit text = rig.request();
  text.ids.clear();
  text.text = "a";
  rig.from(kClient, text);
  cancelled();
  rig.run_worker();
  CHECK(rig.context.sent.empty());
  // Admitting.
  rig.from(kClient, rig.request());
  RequestId id = rig.context.expect<Admit>().envelope.request;
  cancelled();
  CHECK(rig.context.expect<Cancel>(GatewayRig::kScheduler).envelope.request == id);
  rig.from(GatewayRig::kScheduler, Admitted{}, {.request = id, .epoch = Epoch{1}});
  CHECK(rig.context.sent.empty());
  // Queued or running, before the first token and after it.
  id = rig.start(kClient, rig.request());
  cancelled();
  rig.context.forget_sent();
  id = rig.start(kClient, rig.request());
  rig.token(id, 0, 'a');
  CHECK(rig.streamed(kClient).text == "a");
  cancelled();
  const auto cancel = rig.context.expect<Cancel>(GatewayRig::kScheduler);
  CHECK(cancel.envelope.request == id);
  CHECK(cancel.envelope.epoch == Epoch{1});
  rig.token(id, 1, 'b');
  rig.done_ack(id);
  CHECK(rig.context.sent.empty());
  // All tokens are here: the result is the end.
  id = rig.start(kClient, rig.request());
  rig.token(id, 0, kEos, Finish::stop);
  rig.from(kClient, ClientCancel{1});
  CHECK(rig.context.count<Cancel>() == 0);
  rig.done_ack(id);
  rig.from(kClient, ClientCancel{1});
  CHECK(rig.context.count<ClientDone>() == 1);
  CHECK(rig.context.count<ClientRefused>() == 0);
  rig.from(kClient, ClientCancel{99});  // never heard of
  CHECK(rig.context.count<ClientRefused>() == 0);
}

TEST_CASE("T62: a job number that is in use with other content is refused and the first goes on") {
  GatewayRig rig;
  rig.hello(kClient);
  const RequestId id = rig.start(kClient, rig.request());
  rig.token(id, 0, 'a');
  CHECK(rig.streamed(kClient).text == "a");
  Submit other = rig.request();
  other.ids = {'n', 'o'};
  rig.from(kClient, other, {.correlation = 3});
  const auto refusal = rig.context.expect<ClientRefused>(kClient);
  CHECK(refusal.message.refusal.code == ErrorCode::conflict);
  CHECK(refusal.envelope.correlation == 3);
  rig.from(kClient, rig.request());  // the same again: a client that is not sure it arrived
  CHECK(rig.context.expect<Accepted>(kClient).message.request == id);
  CHECK(rig.streamed(kClient).text == "a");  // from the start
  CHECK(rig.context.count<Admit>() == 0);
  CHECK(rig.gateway->live_requests() == 1);
  rig.hello(kAgain);  // another client may use the number
  rig.start(kAgain, other);
}

TEST_CASE("promise 6: a hundred submits of one key are one execution, and all get its result") {
  GatewayRig rig;
  Submit submit = rig.request();
  submit.ids.clear();
  submit.text = "hello";
  submit.idempotency_key = "order-1";
  RequestId id;
  for (uint32_t i = 1; i <= 100; ++i) {
    submit.job = i;
    submit.stream = i % 2;
    rig.hello(client_at(i));
    if (i == 40) rig.run_worker();
    if (i == 60) {
      id = rig.context.expect<Admit>().envelope.request;
      rig.from(GatewayRig::kScheduler, Admitted{}, {.request = id, .epoch = Epoch{1}});
    }
    if (i == 70) rig.text(id, 0, "ab");
    if (i == 80) rig.text(id, 2, "c", Finish::length);
    if (i == 90) {
      rig.done_ack(id);
      // Those that have it may forget it; the key still knows.
      rig.from(client_at(1), ClientAck{1, 3, true});
    }
    rig.from(client_at(i), submit);
  }
  CHECK(rig.context.count<Admit>() == 0);
  CHECK(rig.workers.queue.empty());
  for (uint32_t i = 1; i <= 100; ++i) {
    CAPTURE(i);
    CHECK(rig.context.count<Accepted>(client_at(i)) == 1);
    CHECK(rig.streamed(client_at(i), i).text == (i % 2 ? "abc" : ""));
    const ClientDone done = rig.context.expect<ClientDone>(client_at(i)).message;
    CHECK(done.job == i);
    CHECK(done.choices[0].text == "abc");
  }
  CHECK(rig.context.count<ClientDone>() == 0);
  CHECK(rig.gateway->counters().attached == 99);
}

TEST_CASE("a key with other content is a conflict; of another tenant it is another key") {
  GatewayRig rig;
  rig.hello(kClient);
  Submit submit = rig.request(1);
  submit.idempotency_key = "k";
  rig.start(kClient, submit);
  submit.job = 2;
  submit.sampling.temperature = 1;
  rig.from(kClient, submit);
  CHECK(rig.context.expect<ClientRefused>(kClient).message.refusal.code == ErrorCode::conflict);
  submit.tenant = "other";
  rig.start(kClient, submit);
  CHECK(rig.gateway->live_requests() == 2);
}

TEST_CASE("a key whose request failed is free again, and one client's cancel spares the others") {
  Limits limits;
  limits.requests_per_client_max = 1;
  GatewayRig rig(limits);
  rig.hello(kClient);
  rig.hello(kAgain);
  Submit submit = rig.request();
  submit.idempotency_key = "k";
  rig.from(kClient, submit);
  RequestId id = rig.context.expect<Admit>().envelope.request;
  rig.from(GatewayRig::kScheduler, AdmitRefused{{ErrorCode::busy, "full", 100}}, {.request = id});
  rig.context.expect<ClientRefused>(kClient);
  rig.from(kClient, ClientAck{1, 0, true});
  id = rig.start(kClient, submit);
  rig.from(kAgain, submit);
  rig.context.expect<Accepted>(kAgain);
  rig.from(kClient, ClientCancel{1});
  CHECK(rig.context.expect<ClientRefused>(kClient).message.refusal.code == ErrorCode::cancelled);
  CHECK(rig.context.count<Cancel>() == 0);
  rig.start(kClient, rig.request(2));  // it no longer counts as one of this client's
  rig.token(id, 0, 'a', Finish::length);
  rig.done_ack(id);
  CHECK(rig.context.count<ClientDone>(kAgain) == 1);
  CHECK(rig.context.count<ClientDone>(kClient) == 0);
}

TEST_CASE("full means busy with a time to come back: clients, requests of one, requests of all") {
  Limits limits;
  limits.clients_max = 2;
  limits.requests_per_client_max = 2;
  limits.live_requests_max = 3;
  GatewayRig rig(limits);
  const auto busy = [&](ActorId client) {
    const Refusal refusal = rig.context.expect<ClientRefused>(client).message.refusal;
    CHECK(refusal.code == ErrorCode::busy);
    CHECK(refusal.retry_after_ms > 0);
  };
  rig.hello(client_at(1));
  rig.hello(client_at(2));
  rig.from(client_at(3), ClientHello{});
  busy(client_at(3));
  rig.start(client_at(1), rig.request(1));
  rig.start(client_at(1), rig.request(2));
  rig.from(client_at(1), rig.request(3));
  busy(client_at(1));
  rig.start(client_at(2), rig.request(1));
  rig.from(client_at(2), rig.request(2));
  busy(client_at(2));
  // One that left makes room, though its results could still be fetched.
  rig.from(client_at(2), ClientGone{});
  rig.context.advance(*rig.gateway, limits.client_grace_us);
  rig.hello(client_at(3));
  rig.start(client_at(3), rig.request(1));
  CHECK(rig.gateway->sessions() == 2);
}

TEST_CASE("status asks the scheduler and answers whoever asked, session or not") {
  GatewayRig rig;
  rig.from(kClient, StatusQuery{}, {.correlation = 4});
  rig.from(kAgain, StatusQuery{}, {.correlation = 5});
  const auto first = rig.context.expect<ClusterQuery>(GatewayRig::kScheduler);
  const auto second = rig.context.expect<ClusterQuery>(GatewayRig::kScheduler);
  ClusterReply cluster;
  cluster.workers.resize(2);
  cluster.workers[1].role = Role::decode;
  rig.from(GatewayRig::kScheduler, cluster, {.correlation = second.envelope.correlation});
  const auto reply = rig.context.expect<StatusReply>(kAgain);
  CHECK(reply.envelope.correlation == 5);
  CHECK(reply.message.ready);
  CHECK(reply.message.model == "bytes");
  CHECK_FALSE(reply.message.counters.empty());
  cluster.workers[1].alive = false;
  rig.from(GatewayRig::kScheduler, cluster, {.correlation = first.envelope.correlation});
  CHECK_FALSE(rig.context.expect<StatusReply>(kClient).message.ready);
  rig.from(GatewayRig::kScheduler, cluster, {.correlation = first.envelope.correlation});
  CHECK(rig.context.sent.empty());
}
