#include "launch/sim/sim_updates.h"

#include <utility>

#include "runtime/engine/fake_model.h"

namespace baton {
namespace {

constexpr const char* kLastPath = "/good/last";
constexpr Micros kLastRetry = 2 * kSecond;

}  // namespace

Result<uint64_t> open_sim_weights(const WeightsSource& source, uint32_t rank) {
  const std::string& path = source.path;
  const bool bad = path.starts_with("/bad/") || (path.starts_with("/partly/") && rank % 2 == 0);
  if (bad) return Error{ErrorCode::bad_model, path + ": is not a model"};
  if (path.starts_with("/torn/")) return fake_weights(path + std::to_string(rank));
  return fake_weights(path);
}

SimUpdates::SimUpdates(World& world, const UpdatePlan& plan, Complain complain)
    : world_(world), plan_(plan), complain_(std::move(complain)) {}

void SimUpdates::start(Micros until) {
  until_ = until;
  if (plan_.gap_us_max <= 0) return;
  world_.at(world_.random().between(1, plan_.gap_us_max), [this] { ask(); });
}

UpdateWeights SimUpdates::draw() {
  SimRandom& random = world_.random();
  UpdateWeights ask;
  ask.token = "update " + std::to_string(++last_);
  const char* kind = "/good/";
  if (random.chance(plan_.bad)) {
    static constexpr const char* kKinds[] = {"/bad/", "/partly/", "/torn/"};
    kind = kKinds[random.below(3)];
  }
  ask.source.path = kind + std::to_string(last_);
  ask.policy = static_cast<WeightsPolicy>(random.below(3));
  if (!plan_.aborts && ask.policy == WeightsPolicy::abort) ask.policy = WeightsPolicy::resume;
  ask.dry_run = random.chance(0.1);
  ask.wait_retired = random.chance(0.5);
  ask.timeout_ms = random.between(500, 10000);
  return ask;
}

void SimUpdates::ask() {
  if (world_.now() > until_) return;
  send(draw());
  world_.at(world_.random().between(1, plan_.gap_us_max), [this] { ask(); });
}

void SimUpdates::send(const UpdateWeights& what) {
  ++counts_.asked;
  asked_[what.token] = what;
  Mail mail;
  mail.envelope.kind = UpdateWeights::kind;
  mail.envelope.from = {kClientRank, kOperatorSlot, 1};
  mail.envelope.to = {0, kGatewaySlot, kAnyIncarnation};
  mail.envelope.correlation = last_;
  mail.body = encode_body(what);
  world_.at_rank(0, world_.random().between(20, 400), [this, mail, token = what.token] {
    // A listener says busy itself.
    if (world_.host(0).post(Mail(mail)) == Pushed::full) asked_.erase(token);
  });
}

void SimUpdates::finish() {
  if (counts_.asked == 0) return;
  finished_ = false;
  ask_last();
}

void SimUpdates::ask_last() {
  if (finished_) return;
  UpdateWeights last;
  last.token = "update " + std::to_string(++last_);
  last.source.path = kLastPath;
  last.policy = WeightsPolicy::resume;
  send(last);
  world_.at(kLastRetry, [this] { ask_last(); });
}

void SimUpdates::receive(const Mail& mail) {
  if (mail.envelope.kind != UpdateReport::kind) return;
  const Result<UpdateReport> report = decode_body<UpdateReport>(mail.body, Limits{});
  if (!report.ok()) return complain_("the operator got a report that does not decode");
  const auto found = asked_.find(report->token);
  if (found == asked_.end()) return complain_("the operator got a report behind the last one");
  if (!report->last) return;
  const UpdateWeights ask = found->second;
  asked_.erase(found);
  if (report->phase == UpdatePhase::failed) {
    const bool refused =
        report->refusal.code == ErrorCode::conflict && report->refusal.retry_after_ms > 0;
    ++(refused ? counts_.refused : counts_.failed);
    if (report->refusal.text.empty()) complain_("an update failed without a sentence");
    return;
  }
  if (ask.dry_run) return;
  ++counts_.committed;
  finished_ |= ask.source.path == kLastPath;
  const bool bad = !ask.source.path.starts_with("/good/");
  // One worker alone reads "torn" and "partly" files without a fault, if it is the right one.
  if (bad && ask.source.path.starts_with("/bad/")) {
    complain_("weights from " + ask.source.path + " were committed");
  }
}

}  // namespace baton
