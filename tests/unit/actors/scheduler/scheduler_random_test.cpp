// Seeded random histories: simple but honest workers and a gateway around one real scheduler. Mail
// of one sender to one receiver stays in order; everything else happens in any order.

#include <algorithm>
#include <deque>
#include <optional>

#include "tests/unit/actors/scheduler/cluster.h"

using namespace baton;
using namespace baton::test;

namespace {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}
  uint32_t below(uint32_t bound) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state_ >> 33) % bound;
  }
  bool chance(uint32_t percent) { return below(100) < percent; }

 private:
  uint64_t state_;
};

struct FakeJob {
  RequestId request;
  Epoch epoch;
  TransferId transfer;
  ActorId target;  // of a prefill job
  uint32_t committed = 0;
  SlotLease slot;
  uint32_t blocks = 0;
  bool active = false;  // of a decode job: adopted
};

struct FakeWorker {
  ActorId id;
  Role role = Role::prefill;
  bool alive = true;
  uint32_t slots = 3;
  uint32_t blocks = 24;
  std::map<TransferId, FakeJob> jobs;
  std::map<uint32_t, uint32_t> generations;
  std::set<uint32_t> used;
  std::map<RequestId, Epoch> cancelled;
  std::deque<Mail> inbox;   // from the scheduler
  std::deque<Mail> outbox;  // to the scheduler
  uint64_t beat = 0;
  uint64_t echo = 0;

  uint32_t blocks_free() const {
    uint32_t held = 0;
    for (const auto& [transfer, job] : jobs) held += role == Role::decode ? job.blocks : 0;
    return blocks - held;
  }
  uint32_t slots_free() const { return slots - static_cast<uint32_t>(used.size()); }
};

struct FakeStream {
  Epoch epoch;
  uint32_t committed = 0;
  uint32_t total = 0;  // tokens that the answer has
  bool done_sent = false;
  int ends = 0;  // terminal words from the scheduler
};

class History {
 public:
  explicit History(uint64_t seed) : random_(seed), cluster_(options()) {
    for (uint32_t rank = 1; rank <= 5; ++rank) {
      const Role role = rank <= 2 ? Role::prefill : Role::decode;
      const uint32_t slot = role == Role::prefill ? kPrefillSlot : kDecodeSlot;
      FakeWorker& worker = workers_.emplace_back();
      worker.id = {rank, slot, 1};
      worker.role = role;
      begin_life(worker);
    }
  }

  void run() {
    for (int step = 0; step < 1500; ++step) take_step(true);
    // No more faults, nothing new: everything must end.
    for (FakeWorker& worker : workers_) {
      if (!worker.alive) restart(worker);
    }
    for (int step = 0; step < 20000 && !at_rest(); ++step) take_step(false);
    check_rest();
  }

  const SchedulerCounters& counters() const { return cluster_.scheduler.counters(); }

 private:
  static SchedulerOptions options() {
    SchedulerOptions options = default_options();
    options.limits.queued_requests_max = 12;
    options.limits.attempts_max = 50;
    options.limits.worker_deaths_max = 50;
    options.limits.stage_us = 30 * kSecond;
    return options;
  }

  // ---------------------------------------------------------------- the world's moves

  void take_step(bool faults) {
    collect();
    const uint32_t dice = random_.below(100);
    FakeWorker& worker = workers_[random_.below(static_cast<uint32_t>(workers_.size()))];
    if (dice < 8 && faults) {
      submit();
    } else if (dice < 11 && faults) {
      cancel_one();
    } else if (dice < 40) {
      hear(worker);
    } else if (dice < 65) {
      speak(worker);
    } else if (dice < 82) {
      work(worker, faults);
    } else if (dice < 90) {
      answer();
    } else if (dice < 97) {
      pass_time();
    } else if (dice < 98 && faults) {
      worker.alive ? kill(worker) : restart(worker);
    }
    check_always();
  }

  void begin_life(FakeWorker& worker) {
    worker.alive = true;
    queue(worker, Cluster::registration(worker.role, worker.slots, worker.blocks), {});
  }
  void kill(FakeWorker& worker) {
    worker.alive = false;
    worker.inbox.clear();
    worker.outbox.clear();
    worker.jobs.clear();
    worker.used.clear();
  }
  void restart(FakeWorker& worker) {
    ++worker.id.incarnation;
    worker.beat = worker.echo = 0;
    begin_life(worker);
  }

  // What the scheduler has sent goes to the inboxes, in order.
  void collect() {
    for (Mail& mail : cluster_.context.sent) {
      if (mail.envelope.to.slot == kGatewaySlot) {
        gateway_inbox_.push_back(std::move(mail));
        continue;
      }
      for (FakeWorker& worker : workers_) {
        if (worker.alive && worker.id == mail.envelope.to) worker.inbox.push_back(std::move(mail));
      }
    }
    cluster_.context.sent.clear();
  }

  template <Message M>
  void queue(FakeWorker& worker, const M& message, const Routing& routing) {
    Mail mail;
    mail.envelope.kind = M::kind;
    mail.envelope.from = worker.id;
    mail.envelope.to = {0, kSchedulerSlot, 1};
    mail.envelope.request = routing.request;
    mail.envelope.epoch = routing.epoch;
    mail.body = encode_body(message);
    worker.outbox.push_back(std::move(mail));
  }
  void speak(FakeWorker& worker) {
    if (worker.outbox.empty()) return;
    const Mail mail = std::move(worker.outbox.front());
    worker.outbox.pop_front();
    REQUIRE(cluster_.scheduler.receive(cluster_.context, mail));
  }
  void pass_time() {
    for (FakeWorker& worker : workers_) {
      if (!worker.alive || worker.beat == 0) continue;
      Beat beat;
      beat.seq = worker.beat++;
      beat.echo = worker.echo;
      beat.slots_free = worker.slots_free();
      beat.blocks_free = worker.blocks_free();
      queue(worker, beat, {});
      // The loop that beats also hears and speaks.
      while (!worker.outbox.empty()) speak(worker);
      collect();
      while (!worker.inbox.empty()) hear(worker);
    }
    cluster_.context.advance(cluster_.scheduler, 50 * kMillisecond + random_.below(400000));
  }

  // ---------------------------------------------------------------- workers

  void hear(FakeWorker& worker) {
    if (worker.inbox.empty()) return;
    const Mail mail = std::move(worker.inbox.front());
    worker.inbox.pop_front();
    const Envelope& e = mail.envelope;
    const Routing routing{e.request, e.epoch, 0, kNever};
    switch (e.kind) {
      case MsgKind::welcome:
        if (worker.beat == 0) worker.beat = 1;
        break;
      case MsgKind::connect: {
        const auto asked = body<Connect>(mail);
        queue(worker, Connected{asked.pair, asked.plan.digest}, {});
        break;
      }
      case MsgKind::beat_ack: worker.echo = body<BeatAck>(mail).seq; break;
      case MsgKind::refused:
        kill(worker);
        restart(worker);
        break;
      case MsgKind::reserve: hear_reserve(worker, body<Reserve>(mail), routing); break;
      case MsgKind::release: end_job(worker, body<Release>(mail).transfer); break;
      case MsgKind::cancel: hear_cancel(worker, routing); break;
      case MsgKind::run: hear_run(worker, body<Run>(mail), routing); break;
      default: break;  // PeerDown, Drain
    }
  }

  void hear_reserve(FakeWorker& worker, const Reserve& wanted, const Routing& routing) {
    const uint32_t blocks = small_geometry().blocks_for(wanted.tokens + 1);
    // Credits: the scheduler never asks for a slot that is not there.
    CHECK(worker.slots_free() > 0);
    const auto cancelled = worker.cancelled.find(routing.request);
    const bool unwanted = cancelled != worker.cancelled.end() && routing.epoch <= cancelled->second;
    if (unwanted || blocks > worker.blocks_free() || random_.chance(3)) {
      queue(worker, ReserveRefused{wanted.transfer, {ErrorCode::busy, "no", 0}}, routing);
      return;
    }
    FakeJob job;
    job.request = routing.request;
    job.epoch = routing.epoch;
    job.transfer = wanted.transfer;
    job.blocks = blocks;
    uint32_t slot = 0;
    while (worker.used.contains(slot)) ++slot;
    worker.used.insert(slot);
    job.slot = {{slot}, {++worker.generations[slot]}};
    worker.jobs[job.transfer] = job;
    queue(worker, Reserved{job.transfer, {job.slot}, {}, 0, blocks}, routing);
  }

  void hear_run(FakeWorker& worker, const Run& run, const Routing& routing) {
    const auto cancelled = worker.cancelled.find(routing.request);
    const bool unwanted = cancelled != worker.cancelled.end() && routing.epoch <= cancelled->second;
    if (unwanted || random_.chance(3)) {
      queue(worker, RunRefused{run.transfer, {ErrorCode::busy, "no", 0}}, routing);
      return;
    }
    // A life begins with exactly what the client has.
    FakeStream& stream = streams_.at(routing.request);
    const auto committed =
        run.committed.empty() ? 0 : static_cast<uint32_t>(run.committed[0].size());
    if (routing.epoch == stream.epoch) CHECK(committed == stream.committed);
    CHECK(lives_.insert({routing.request, routing.epoch}).second);
    FakeJob job;
    job.request = routing.request;
    job.epoch = routing.epoch;
    job.transfer = run.transfer;
    job.target = run.target;
    job.committed = committed;
    worker.jobs[run.transfer] = job;
  }

  void hear_cancel(FakeWorker& worker, const Routing& routing) {
    Epoch& epoch = worker.cancelled[routing.request];
    epoch = std::max(epoch, routing.epoch);
    std::vector<TransferId> ended;
    for (const auto& [transfer, job] : worker.jobs) {
      if (job.request == routing.request && job.epoch <= routing.epoch) ended.push_back(transfer);
    }
    for (const TransferId transfer : ended) end_job(worker, transfer);
    queue(worker, Cancelled{}, routing);
  }

  void end_job(FakeWorker& worker, TransferId transfer) {
    const auto found = worker.jobs.find(transfer);
    if (found == worker.jobs.end()) return;
    const FakeJob job = found->second;
    worker.jobs.erase(found);
    if (worker.role == Role::prefill) return;
    worker.used.erase(job.slot.slot.value);
    queue(worker, SlotFreed{job.slot, 0, worker.slots_free(), worker.blocks_free(), Finish::none},
          {job.request, job.epoch, 0, kNever});
  }

  void work(FakeWorker& worker, bool faults) {
    if (!worker.alive || worker.jobs.empty()) return;
    auto at = worker.jobs.begin();
    std::advance(at, random_.below(static_cast<uint32_t>(worker.jobs.size())));
    FakeJob& job = at->second;
    const Routing routing{job.request, job.epoch, 0, kNever};
    if (worker.role == Role::prefill) return compute(worker, job, routing, faults);
    if (!job.active) return;
    if (faults && random_.chance(4)) {
      queue(worker, Preempted{job.slot}, routing);
      return end_job(worker, job.transfer);
    }
    give_token(job);
    const FakeStream& stream = streams_.at(job.request);
    if (job.committed >= stream.total) end_job(worker, job.transfer);
  }

  void compute(FakeWorker& worker, FakeJob& job, const Routing& routing, bool faults) {
    const TransferId transfer = job.transfer;
    if (faults && random_.chance(4)) {
      queue(worker, PrefillFailed{transfer, {ErrorCode::internal, "no", 0}, true}, routing);
      worker.jobs.erase(transfer);
      return;
    }
    give_token(job);
    const bool all = job.committed >= streams_.at(job.request).total;
    queue(worker, PrefillDone{transfer, Usage{}, all ? Finish::stop : Finish::none}, routing);
    const FakeJob handed = job;
    worker.jobs.erase(transfer);
    if (!all) hand_over(handed, routing);
  }

  void hand_over(const FakeJob& handed, const Routing& routing) {
    for (FakeWorker& target : workers_) {
      if (!target.alive || target.id != handed.target) continue;
      const auto found = target.jobs.find(handed.transfer);
      if (found == target.jobs.end()) {
        queue(target, AdoptFailed{handed.transfer, {ErrorCode::not_found, "?", 0}}, routing);
        return;
      }
      found->second.active = true;
      found->second.committed = handed.committed;
      queue(target, Adopted{handed.transfer, Usage{}}, routing);
    }
  }

  // One token of a life; the commit point takes it only if the epoch is the present one.
  void give_token(FakeJob& job) {
    FakeStream& stream = streams_.at(job.request);
    if (job.epoch == stream.epoch && job.committed == stream.committed &&
        stream.committed < stream.total) {
      ++stream.committed;
    }
    ++job.committed;
  }

  // ---------------------------------------------------------------- the gateway

  void submit() {
    const RequestId id{++last_request_};
    const auto prompt = 1 + random_.below(150);
    streams_[id].total = 1 + random_.below(6);
    const Micros remaining = random_.chance(10) ? 2 * kSecond : kNever;
    cluster_.deliver(kGateway, Cluster::ask(prompt, 100), {id, {}, 0, remaining});
  }
  void cancel_one() {
    if (last_request_ == 0) return;
    const RequestId id{1 + random_.below(static_cast<uint32_t>(last_request_))};
    cluster_.deliver(kGateway, Cancel{}, {id, streams_[id].epoch, 0, kNever});
  }
  void answer() {
    if (!gateway_inbox_.empty()) {
      const Mail mail = std::move(gateway_inbox_.front());
      gateway_inbox_.pop_front();
      return hear_gateway(mail);
    }
    for (auto& [id, stream] : streams_) {
      if (stream.committed < stream.total || stream.done_sent || stream.ends > 0) continue;
      stream.done_sent = true;
      cluster_.deliver(kGateway, Done{Finish::stop, stream.total}, {id, stream.epoch, 0, kNever});
      return;
    }
  }
  void hear_gateway(const Mail& mail) {
    const Envelope& e = mail.envelope;
    FakeStream& stream = streams_[e.request];
    switch (e.kind) {
      case MsgKind::admitted:
        CHECK(e.epoch >= stream.epoch);
        stream.epoch = e.epoch;
        break;
      case MsgKind::freeze: {
        CHECK(e.epoch > stream.epoch);
        stream.epoch = e.epoch;
        const bool complete = stream.committed >= stream.total;
        const std::vector<TokenId> committed(stream.committed, 1);
        cluster_.deliver(kGateway, Frozen{{committed}, complete}, {e.request, e.epoch, 0, kNever});
        break;
      }
      case MsgKind::admit_refused:
      case MsgKind::failed:
      case MsgKind::done_ack: ++stream.ends; break;
      default: break;
    }
  }

  // ---------------------------------------------------------------- checks

  void check_always() {
    const LiveRequests& requests = cluster_.scheduler.requests();
    uint64_t rows = 0;
    for (const uint64_t count : requests.by_state()) rows += count;
    REQUIRE(rows == requests.size());
    uint64_t slots = 0;
    for (const auto& [key, worker] : cluster_.scheduler.members().live()) {
      slots += worker.info.capacity.slots;
    }
    uint64_t by_lease = 0;
    for (const uint64_t count : cluster_.scheduler.leases().slots_by_state()) by_lease += count;
    REQUIRE(by_lease == slots);
    REQUIRE(cluster_.scheduler.queued() ==
            requests.by_state()[static_cast<size_t>(RequestState::queued)]);
  }
  bool at_rest() {
    collect();
    return cluster_.scheduler.requests().size() == 0 && cluster_.all_slots_free() &&
           gateway_inbox_.empty();
  }
  void check_rest() {
    CHECK(cluster_.scheduler.requests().size() == 0);
    CHECK(cluster_.scheduler.queued() == 0);
    CHECK(cluster_.all_slots_free());
    for (const auto& [id, stream] : streams_) {
      INFO("request ", id.value);
      // Done and Failed may cross; the scheduler still ends a request once.
      CHECK(stream.ends >= 1);
      CHECK(stream.ends <= (stream.done_sent ? 2 : 1));
    }
    const SchedulerCounters& c = counters();
    CHECK(c.admitted == c.finished + c.cancelled + c.failed);
    for (const auto& [key, worker] : cluster_.scheduler.members().live()) {
      CHECK(worker.requests.empty());
      CHECK(worker.arriving == 0);
      CHECK(worker.positions_ahead == 0);
    }
  }

  template <Message M>
  static M body(const Mail& mail) {
    return *decode_body<M>(mail.body, Limits{});
  }

  Random random_;
  Cluster cluster_;
  std::vector<FakeWorker> workers_;
  std::deque<Mail> gateway_inbox_;
  std::map<RequestId, FakeStream> streams_;
  std::set<std::pair<RequestId, Epoch>> lives_;
  uint64_t last_request_ = 0;
};

}  // namespace

TEST_CASE("random histories with deaths, refusals and cancels end with one word each and no leak") {
  SchedulerCounters sum;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    INFO("seed ", seed);
    History history(seed);
    history.run();
    sum.finished += history.counters().finished;
    sum.cancelled += history.counters().cancelled;
    sum.migrations += history.counters().migrations;
    sum.preemptions += history.counters().preemptions;
    sum.fenced_messages += history.counters().fenced_messages;
    sum.reserve_refusals += history.counters().reserve_refusals;
  }
  // The histories do reach what they are for.
  CHECK(sum.finished > 500);
  CHECK(sum.cancelled > 100);
  CHECK(sum.migrations > 100);
  CHECK(sum.preemptions > 30);
  CHECK(sum.fenced_messages > 30);
  CHECK(sum.reserve_refusals > 30);
}
