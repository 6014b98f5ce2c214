#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/actors/gateway/gateway_rig.h"

using namespace baton;
using namespace baton::test;

namespace {

// A random world around one gateway: clients that come, go, cancel and repeat themselves; a
// scheduler that refuses, freezes, fails and forgets to answer; workers whose entries come late,
// twice, in any order and from epochs that are over. What clients receive is checked as it comes.
class World {
 public:
  explicit World(uint64_t seed) : random_(seed), rig_(limits(), {}, seed) {
    for (int i = 0; i < 3; ++i) {
      clients_.emplace_back();
      connect(clients_.back());
    }
  }

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      step();
      drain();
    }
    heal();
  }
  size_t results() const { return results_; }

 private:
  struct ClientJob {
    Submit submit;
    uint32_t have = 0;     // tokens received, in order
    size_t asks = 1;       // Submit, Submit again, Fetch
    size_t terminals = 0;  // answers to them; at most one each
    bool known = false;    // ended with something other than not_found
    bool done = false;     // that was ClientDone
  };
  struct Client {
    ActorId address;
    std::string token;
    bool connected = false;
    std::map<uint64_t, ClientJob> jobs;
  };
  struct Row {  // the scheduler's
    std::vector<TokenId> prompt;
    uint32_t length = 0;  // tokens that the model would generate
    Epoch epoch;
    uint32_t base = 0;  // committed at the last freeze
    bool live = false;
    std::set<uint32_t> sent;  // seqs of this epoch
  };

  static Limits limits() {
    Limits limits;
    limits.stream_bytes_max = 600;
    limits.stream_ahead_max = 8;
    return limits;
  }
  // The model: a pure function of prompt and position, so that any retry must go on with it.
  static TokenId token_of(const std::vector<TokenId>& prompt, uint32_t seq) {
    return 'a' + static_cast<TokenId>((static_cast<uint32_t>(prompt[0]) * 31 + seq * 7) % 26);
  }
  uint64_t pick(uint64_t n) { return random_() % n; }

  // ---- clients
  void connect(Client& client) {
    client.address = client_at(++last_slot_);
    client.connected = true;
    rig_.from(client.address, ClientHello{client.token, "random"});
    const auto reply = rig_.context.take<ModelReply>(client.address);
    REQUIRE(reply.has_value());
    const bool same = client.token == reply->message.session;
    client.token = reply->message.session;
    for (auto& [number, job] : client.jobs) {
      if (job.known) continue;
      ++job.asks;
      if (same) {
        rig_.from(client.address, Fetch{number, job.have});
      } else {
        job.have = 0;
        rig_.from(client.address, job.submit);
      }
    }
  }
  void submit(Client& client) {
    Submit submit = GatewayRig::request(++last_job_);
    const uint64_t content = pick(200);
    submit.ids = {static_cast<TokenId>(content), 'x'};
    submit.stream = pick(4) != 0;
    submit.max_tokens = static_cast<uint32_t>(1 + content % 30);
    if (pick(4) == 0) submit.idempotency_key = "key" + std::to_string(content);
    if (pick(5) == 0) submit.deadline_ms = static_cast<int64_t>(1 + pick(3000));
    client.jobs[submit.job].submit = submit;
    rig_.from(client.address, submit);
  }
  void act(Client& client) {
    if (!client.connected) {
      if (pick(2)) connect(client);
      return;
    }
    if (pick(30) == 0) {
      client.connected = false;
      rig_.from(client.address, ClientGone{});
      return;
    }
    if (pick(3) == 0 || client.jobs.empty()) return submit(client);
    auto job = client.jobs.begin();
    std::advance(job, static_cast<ptrdiff_t>(pick(client.jobs.size())));
    switch (pick(4)) {
      case 0:
        rig_.from(client.address, ClientAck{job->first, job->second.have, pick(2) == 0});
        return;
      case 1:
        if (pick(3) == 0) rig_.from(client.address, ClientCancel{job->first});
        return;
      case 2:
        if (job->second.known) return;
        ++job->second.asks;
        rig_.from(client.address, Fetch{job->first, job->second.have});
        return;
      default:
        if (job->second.known) return;
        ++job->second.asks;
        job->second.have = 0;
        rig_.from(client.address, job->second.submit);
    }
  }

  // ---- workers and scheduler
  void act(RequestId id, Row& row) {
    const Routing routing{.request = id, .epoch = row.epoch};
    if (row.epoch == Epoch{0}) {
      if (pick(5) == 0) {
        row.live = false;
        rig_.from(GatewayRig::kScheduler, AdmitRefused{{ErrorCode::busy, "full", 1}}, routing);
      } else {
        row.epoch = Epoch{1};
        rig_.from(GatewayRig::kScheduler, Admitted{}, {.request = id, .epoch = row.epoch});
      }
      return;
    }
    switch (pick(12)) {
      case 0:
        row.epoch.value += 1;
        row.sent.clear();
        rig_.from(GatewayRig::kScheduler, Freeze{"random"}, {.request = id, .epoch = row.epoch});
        return;
      case 1:
        if (pick(6) != 0) return;
        row.live = false;
        rig_.from(GatewayRig::kScheduler, Failed{{ErrorCode::worker_lost, "random", 0}}, routing);
        return;
      default: send_some(id, row);
    }
  }
  TokenEntry entry(RequestId id, const Row& row, uint32_t seq) {
    return GatewayRig::entry(id, seq, token_of(row.prompt, seq),
                             seq + 1 == row.length ? Finish::length : Finish::none,
                             row.epoch.value);
  }
  void send_some(RequestId id, Row& row) {
    Tokens tokens;
    for (uint64_t i = 0; i <= pick(4); ++i) {
      // Mostly the next one, sometimes a later or an earlier one.
      uint32_t next = row.base;
      while (row.sent.contains(next)) ++next;
      const auto seq = static_cast<uint32_t>(next + (pick(3) == 0 ? pick(4) : 0));
      if (seq < row.length) {
        tokens.entries.push_back(entry(id, row, seq));
        row.sent.insert(seq);
      }
      if (row.epoch.value > 1 && pick(3) == 0) {  // a worker that was given up still talks
        TokenEntry stale = entry(id, row, std::min(next, row.length - 1));
        stale.epoch.value -= 1;
        stale.id = 'Z';
        tokens.entries.push_back(stale);
      }
    }
    const ActorId from = row.sent.size() < 2 ? GatewayRig::kPrefill : GatewayRig::kDecode;
    rig_.from(from, tokens);
  }
  void repeat(RequestId id, Row& row, uint32_t from) {
    Tokens tokens;
    for (uint32_t seq = from; seq < row.length; ++seq)
      tokens.entries.push_back(entry(id, row, seq));
    if (!tokens.entries.empty()) rig_.from(GatewayRig::kDecode, tokens);
  }

  void step() {
    switch (pick(8)) {
      case 0:
        rig_.context.advance(*rig_.gateway, static_cast<Micros>(pick(300 * kMillisecond)));
        return;
      case 1:
      case 2:
      case 3: return act(clients_[pick(clients_.size())]);
      default:
        if (rows_.empty()) return;
        auto row = rows_.begin();
        std::advance(row, static_cast<ptrdiff_t>(pick(rows_.size())));
        if (row->second.live) act(row->first, row->second);
    }
  }

  // ---- what the gateway says
  template <Message M, class Handle>
  bool take_next(Handle handle) {
    if (rig_.context.sent.front().envelope.kind != M::kind) return false;
    const auto sent = rig_.context.expect<M>();
    handle(sent.envelope, sent.message);
    return true;
  }
  void drain() {
    while (!rig_.context.sent.empty()) {
      const bool known =
          take_next<Admit>([&](auto& to, auto& admit) { on_admit(to, admit); }) ||
          take_next<Frozen>([&](auto& to, auto& frozen) { on_frozen(to, frozen); }) ||
          take_next<Resend>([&](auto& to, auto& resend) { on_resend(to, resend); }) ||
          take_next<Cancel>([&](auto& to, auto&) { on_cancel(to); }) ||
          take_next<Done>([&](auto& to, auto& done) { on_done(to, done); }) ||
          take_next<TokensAck>([&](auto&, auto&) {}) || take_next<Accepted>([&](auto&, auto&) {}) ||
          take_next<ClientTokens>([&](auto& to, auto& part) { check(to, part); }) ||
          take_next<ClientDone>([&](auto& to, auto& done) { check(to, done); }) ||
          take_next<ClientRefused>([&](auto& to, auto& end) { check(to, end); });
      REQUIRE(known);
    }
  }
  void on_admit(const Envelope& to, const Admit& admit) {
    REQUIRE_FALSE(rows_.contains(to.request));
    rows_[to.request] = {admit.ids, admit.stops.max_tokens, {}, 0, true, {}};
  }
  void on_frozen(const Envelope& to, const Frozen& frozen) {
    Row& row = rows_.at(to.request);
    REQUIRE(to.epoch == row.epoch);
    row.base = static_cast<uint32_t>(frozen.committed.at(0).size());
    for (uint32_t seq = 0; seq < row.base; ++seq) {
      REQUIRE(frozen.committed[0][seq] == token_of(row.prompt, seq));
    }
    REQUIRE(frozen.complete == (row.base == row.length));
  }
  void on_resend(const Envelope& to, const Resend& resend) {
    Row& row = rows_.at(to.request);
    if (row.live && to.epoch == row.epoch) repeat(to.request, row, resend.next);
  }
  void on_cancel(const Envelope& to) {
    if (rows_.contains(to.request)) rows_.at(to.request).live = false;
  }
  void on_done(const Envelope& to, const Done& done) {
    Row& row = rows_.at(to.request);
    REQUIRE(done.completion_tokens == row.length);
    row.live = false;
    if (pick(10) != 0) rig_.done_ack(to.request, {}, to.epoch.value);
  }
  ClientJob& job_of(const Envelope& to, uint64_t job) {
    for (Client& client : clients_) {
      if (client.address != to.to) continue;
      REQUIRE(client.connected);  // nothing is sent to a connection that has ended
      return client.jobs.at(job);
    }
    FAIL("a message to a connection that no client has");
    return clients_[0].jobs.begin()->second;
  }
  void check(const Envelope& to, const ClientTokens& part) {
    ClientJob& job = job_of(to, part.job);
    REQUIRE(job.submit.stream);
    REQUIRE(part.seq == job.have);  // no loss, no repeat, no other order
    for (const TokenId id : part.ids) REQUIRE(id == token_of(job.submit.ids, job.have++));
    REQUIRE(part.text.size() == part.ids.size());
  }
  void terminal(ClientJob& job) {
    ++job.terminals;
    REQUIRE(job.terminals <= job.asks);
  }
  void check(const Envelope& to, const ClientDone& done) {
    ClientJob& job = job_of(to, done.job);
    terminal(job);
    REQUIRE(done.choices.at(0).ids.size() == job.submit.max_tokens);
    for (uint32_t seq = 0; seq < job.submit.max_tokens; ++seq) {
      REQUIRE(done.choices[0].ids[seq] == token_of(job.submit.ids, seq));
    }
    if (job.submit.stream) REQUIRE(job.have == job.submit.max_tokens);
    REQUIRE((!job.known || job.done));  // an end is final
    job.known = job.done = true;
    ++results_;
  }
  void check(const Envelope& to, const ClientRefused& end) {
    ClientJob& job = job_of(to, end.job);
    terminal(job);
    if (end.refusal.code == ErrorCode::not_found) return;
    REQUIRE_FALSE(job.done);
    job.known = true;
  }

  // ---- faults stop: everything must come to its end
  void heal() {
    for (Client& client : clients_) {
      if (!client.connected) connect(client);
    }
    drain();
    for (int round = 0; round < 100; ++round) {  // the slowest reader's backlog takes a while
      for (auto& [id, row] : rows_) {
        if (!row.live) continue;
        if (row.epoch == Epoch{0}) {
          row.epoch = Epoch{1};
          rig_.from(GatewayRig::kScheduler, Admitted{}, {.request = id, .epoch = row.epoch});
        }
        repeat(id, row, 0);
      }
      drain();
      for (Client& client : clients_) {
        for (auto& [number, job] : client.jobs) {
          rig_.from(client.address, ClientAck{number, job.have, false});
        }
      }
      drain();
      rig_.context.advance(*rig_.gateway, 100 * kMillisecond);
      drain();
    }
    CHECK(rig_.gateway->live_requests() == 0);
    for (const Client& client : clients_) {
      for (const auto& [number, job] : client.jobs) {
        CAPTURE(number);
        CHECK((job.known || job.terminals > 0));
      }
    }
    rig_.context.advance(*rig_.gateway, Limits{}.results_ttl_us);
    drain();
    CHECK(rig_.gateway->kept_results() == 0);
    CHECK(rig_.context.timers_pending() == 0);
  }

  std::mt19937_64 random_;
  GatewayRig rig_;
  std::vector<Client> clients_;
  std::map<RequestId, Row> rows_;
  uint32_t last_slot_ = 0;
  uint64_t last_job_ = 0;
  size_t results_ = 0;
};

}  // namespace

TEST_CASE("whatever happens in whatever order, each job has one end and each stream is exact") {
  size_t results = 0;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    CAPTURE(seed);
    World world(seed);
    world.run(600);
    results += world.results();
  }
  CHECK(results > 150);  // it is not all refusals
}
