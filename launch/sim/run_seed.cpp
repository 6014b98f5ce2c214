#include <algorithm>
#include <memory>
#include <utility>

#include "launch/sim/chaos.h"
#include "launch/sim/checkers/cancel_checker.h"
#include "launch/sim/checkers/epoch_checker.h"
#include "launch/sim/checkers/lease_checker.h"
#include "launch/sim/checkers/limit_checker.h"
#include "launch/sim/checkers/rest_checker.h"
#include "launch/sim/checkers/stream_checker.h"
#include "launch/sim/checkers/terminal_checker.h"
#include "launch/sim/checkers/transfer_checker.h"
#include "launch/sim/findings.h"
#include "launch/sim/sabotage_kit.h"
#include "launch/sim/sim_client.h"
#include "launch/sim/sim_cluster.h"
#include "launch/sim/sim_options.h"

namespace baton {
namespace {

constexpr Micros kAftermathUs = 10 * kSecond;
constexpr Micros kSettleUs = 30 * kSecond;  // after healing, until every worker has joined
constexpr Micros kLiveUs = 180 * kSecond;   // until every job has ended
constexpr Micros kRestUs = 120 * kSecond;   // until all is at rest
constexpr Micros kLimitsUs = 20 * kMillisecond;
constexpr uint32_t kLastJobs = 3;  // submitted when all is well again; they must succeed

SwarmPlan plan_of(const SimOptions& options, const SabotageKit& kit) {
  SimRandom random(options.seed);
  SwarmPlan plan = draw_plan(random, options.calm);
  kit.adjust(plan);
  return plan;
}

// One run: the cluster, its clients, what goes wrong, and who watches.
class SimRun {
 public:
  explicit SimRun(const SimOptions& options);
  SimReport run();

 private:
  SimClusterHooks hooks(const SimOptions& options);
  void to_client(const Mail& mail);
  void watch();
  void watch_limits();
  SimClient& add_client();
  void start_clients();
  std::vector<Submit> draw_jobs();
  bool all_finished() const;
  void live();
  void rest();
  void look_back();
  SimReport report() const;

  const SimOptions options_;
  SabotageKit kit_;
  Findings findings_;
  SimCluster cluster_;
  World& world_;
  Chaos chaos_;
  StreamChecker streams_;
  EpochChecker epochs_;
  LeaseChecker leases_;
  CancelChecker cancels_;
  LimitChecker limits_;
  std::vector<std::unique_ptr<SimClient>> clients_;  // number i + 1 is at i
  std::vector<Submit> keyed_;                        // requests that others may share
  uint64_t tokens_ = 0;
};

SimRun::SimRun(const SimOptions& options)
    : options_(options),
      kit_(options.sabotage),
      cluster_(options.seed, plan_of(options, kit_), hooks(options)),
      world_(cluster_.world()),
      chaos_(cluster_),
      streams_(findings_, {cluster_.model(), &cluster_.tokenizer(), cluster_.plan().context_max}),
      epochs_(findings_),
      leases_(findings_),
      cancels_(world_, cluster_.plan().step_us_max, findings_),
      limits_(cluster_, findings_) {}

SimClusterHooks SimRun::hooks(const SimOptions& options) {
  SimClusterHooks hooks;
  hooks.trace = options.trace;
  hooks.to_client = [this](const Mail& mail) { to_client(mail); };
  hooks.watch_step = [this](const SimMover& mover, const Batch& batch) {
    leases_.step(mover.rank(), batch, cluster_.model().geometry.block_tokens);
    check_step_against_transfers(mover, batch, cluster_.fabric(), findings_);
  };
  if (options.sabotage != Sabotage::none) {
    hooks.sabotage = [this](uint32_t, uint32_t slot) { return kit_.for_actor(slot); };
    hooks.change_batch = [this](Batch& batch) { kit_.change_batch(batch); };
  }
  return hooks;
}

void SimRun::to_client(const Mail& mail) {
  world_.trace(mail);
  epochs_.sent(mail);
  const uint32_t number = client_of_connection(mail.envelope.to.slot);
  for (const Mail& delivered : kit_.to_client(mail)) clients_.at(number - 1)->receive(delivered);
}

void SimRun::watch() {
  world_.watch([this](const Mail& mail) {
    epochs_.delivered(mail);
    limits_.delivered(mail);
    if (mail.envelope.kind != Admit::kind) return;
    const auto admit = decode_body<Admit>(mail.body, Limits{});
    if (admit.ok()) streams_.admitted(mail.envelope.request, *admit);
  });
  world_.watch_posts([this](const Mail& mail) {
    leases_.posted(mail);
    limits_.posted(mail);
    if (options_.calm) cancels_.posted(mail);
  });
  watch_limits();
}

void SimRun::watch_limits() {
  limits_.look();
  world_.at(kLimitsUs, [this] { watch_limits(); });
}

// ---------------------------------------------------------------- clients

SimClient& SimRun::add_client() {
  SimClientHooks hooks;
  hooks.tokens = [this](const JobRecord& job, const ClientTokens& part) {
    tokens_ += part.ids.size();
    streams_.stretch(job, part);
  };
  hooks.complain = [this](const std::string& text) { findings_.add("stream", text); };
  const auto number = static_cast<uint32_t>(clients_.size() + 1);
  clients_.push_back(
      std::make_unique<SimClient>(world_, number, cluster_.plan().clients, std::move(hooks)));
  return *clients_.back();
}

std::vector<Submit> SimRun::draw_jobs() {
  SimRandom& random = world_.random();
  const ClientPlan& plan = cluster_.plan().clients;
  std::vector<Submit> jobs;
  for (uint64_t number = 1; number <= plan.jobs_each; ++number) {
    Submit submit = draw_submit(random, plan, number, cluster_.plan().context_max);
    if (random.chance(plan.share_key)) {
      if (!keyed_.empty() && random.chance(0.6)) {
        submit = keyed_[random.below(keyed_.size())];
        submit.job = number;
      } else {
        submit.idempotency_key = "key " + std::to_string(keyed_.size());
        keyed_.push_back(submit);
      }
    } else if (random.chance(plan.deadline)) {
      submit.deadline_ms = random.between(1, 4000);
    }
    jobs.push_back(std::move(submit));
  }
  return jobs;
}

void SimRun::start_clients() {
  const ClientPlan& plan = cluster_.plan().clients;
  for (uint32_t i = 0; i < plan.clients; ++i) {
    SimClient& client = add_client();
    client.start(draw_jobs(), false);
    if (!world_.random().chance(plan.leave)) continue;
    world_.at(world_.random().between(0, cluster_.plan().safety_us), [&client] { client.leave(); });
  }
}

bool SimRun::all_finished() const {
  return std::all_of(clients_.begin(), clients_.end(),
                     [](const auto& client) { return client->finished(); });
}

// ---------------------------------------------------------------- phases

SimReport SimRun::run() {
  cluster_.fabric().set_sabotage(kit_.fabric());
  watch();
  start_clients();
  chaos_.start();
  world_.advance(cluster_.plan().safety_us);
  chaos_.stop();
  live();
  rest();
  look_back();
  return report();
}

// All is well: every worker comes back, and everything that was asked for comes to an end.
void SimRun::live() {
  // Who was cut off or stalled until just now may still be declared dead.
  world_.advance(kAftermathUs);
  if (!world_.run_until([this] { return cluster_.all_joined(); }, kSettleUs)) {
    findings_.add("liveness", "30 s after the last fault not every worker has joined");
  }
  if (!world_.run_until([this] { return all_finished(); }, kLiveUs)) {
    findings_.add("liveness", "180 s after the last fault some jobs have not ended");
  }
  SimClient& last = add_client();
  std::vector<Submit> jobs;
  ClientPlan modest = cluster_.plan().clients;
  modest.prompt_max = std::min(modest.prompt_max, 32u);
  for (uint64_t number = 1; number <= kLastJobs; ++number) {
    jobs.push_back(draw_submit(world_.random(), modest, number, cluster_.plan().context_max));
  }
  // Where the queue is tiny, one after the other.
  last.start(std::move(jobs), cluster_.plan().limits.queued_requests_max > kLastJobs);
  if (!world_.run_until([&last] { return last.finished(); }, kLiveUs)) {
    findings_.add("liveness", "fresh jobs do not end although nothing is wrong any more");
  }
}

void SimRun::rest() {
  if (world_.run_until([this] { return unrest(cluster_).empty(); }, kRestUs)) return;
  for (const std::string& text : unrest(cluster_)) findings_.add("rest", text);
}

void SimRun::look_back() {
  for (const auto& client : clients_) {
    for (const auto& [number, job] : client->jobs()) {
      check_terminal(job, {client->left(), options_.calm}, findings_);
      streams_.finished(job);
    }
  }
}

SimReport SimRun::report() const {
  SimReport report;
  report.seed = options_.seed;
  report.findings = findings_.list();
  report.trace_hash = world_.trace_hash();
  report.deliveries = world_.deliveries();
  report.virtual_us = world_.now();
  report.plan = describe(cluster_.plan());
  report.tokens = tokens_;
  for (const auto& client : clients_) {
    for (const auto& [number, job] : client->jobs()) {
      ++report.jobs;
      report.done += job.end == JobEnd::done;
      report.refused += job.end == JobEnd::refused;
    }
  }
  report.crashes = chaos_.counts().crashes;
  report.restarts = chaos_.counts().failures;
  report.stalls = chaos_.counts().stalls;
  report.cuts = chaos_.counts().cuts;
  report.stale = epochs_.stale();
  if (const Scheduler* scheduler = cluster_.scheduler()) {
    report.migrations = scheduler->counters().migrations;
    report.preemptions = scheduler->counters().preemptions;
    report.stale += scheduler->counters().fenced_messages;
  }
  for (uint32_t rank : cluster_.decode_ranks()) {
    if (const Decode* decode = cluster_.decode(rank)) report.corrupt += decode->counters().corrupt;
  }
  return report;
}

}  // namespace

SimReport run_seed(const SimOptions& options) {
  SimRun run(options);
  return run.run();
}

}  // namespace baton
