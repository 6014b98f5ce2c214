#include "actors/scheduler/weights_update.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "runtime/base/check.h"

namespace baton {
namespace {

constexpr Micros kRetryUs = 5 * kSecond;  // until a worker that failed to catch up is asked again
constexpr Micros kLongestTimeout = 24 * 3600 * kSecond;

std::string name_of(ActorId worker) {
  return "rank " + std::to_string(worker.rank);
}

std::string number_text(uint64_t version) {
  return "version " + std::to_string(version);
}

std::optional<Refusal> find_ask_fault(const UpdateWeights& ask) {
  constexpr size_t kPathBytesMax = 4096;
  const std::string& path = ask.source.path;
  if (path.empty() || path[0] != '/' || path.size() > kPathBytesMax) {
    return Refusal{ErrorCode::invalid_argument,
                   "the path of the weights is '" + path.substr(0, 200) +
                       "'; expected an absolute path of at most " + std::to_string(kPathBytesMax) +
                       " bytes that every worker's host has",
                   0};
  }
  const std::string& digits = ask.source.sha256;
  const bool hex = std::all_of(digits.begin(), digits.end(),
                               [](unsigned char c) { return std::isxdigit(c) != 0; });
  if (!digits.empty() && (digits.size() != 64 || !hex)) {
    return Refusal{ErrorCode::invalid_argument,
                   "the SHA-256 has " + std::to_string(digits.size()) +
                       " characters; expected 64 hexadecimal digits",
                   0};
  }
  return std::nullopt;
}

}  // namespace

// ---------------------------------------------------------------- workers

WeightsUpdate::Member* WeightsUpdate::find(ActorId worker) {
  const auto found = members_.find(worker_key(worker));
  return found != members_.end() && found->second.id == worker ? &found->second : nullptr;
}

const WeightsUpdate::Member* WeightsUpdate::find(ActorId worker) const {
  const auto found = members_.find(worker_key(worker));
  return found != members_.end() && found->second.id == worker ? &found->second : nullptr;
}

const WeightsUpdate::Version* WeightsUpdate::version(uint64_t number) const {
  if (number == current_.number) return &current_;
  if (candidate_ && number == candidate_->number) return &*candidate_;
  if (previous_ && number == previous_->number) return &*previous_;
  return nullptr;
}

WantState WeightsUpdate::want(uint64_t number) const {
  if (number == current_.number) return WantState::committed;
  if (candidate_ && number == candidate_->number) return WantState::prepared;
  return keeps(number) ? WantState::kept : WantState::nothing;
}

std::optional<Refusal> WeightsUpdate::fault(const Register& info) const {
  for (const WeightsInfo& set : info.weights) {
    const Version* known = version(set.version);
    if (known == nullptr || known->digest == 0 || known->digest == set.digest) continue;
    return Refusal{ErrorCode::conflict,
                   number_text(set.version) +
                       " of the weights is other bytes on this worker than "
                       "on the others; start it again with the same file",
                   0};
  }
  return std::nullopt;
}

// A version that is committed somewhere and newer than what is known here was committed by an
// earlier life of the scheduler: it is the current one.
void WeightsUpdate::adopt(const WeightsInfo& info) {
  if (candidate_) {
    fail({ErrorCode::conflict,
          "a worker joined that has " + number_text(info.version) + " of the weights already", 0});
  }
  const Version known =
      std::exchange(current_, {info.version, info.digest, info.version ^ info.digest, info.source});
  if (known.number != 0) previous_ = known;
  highest_ = std::max(highest_, info.version);
  ask_.policy = WeightsPolicy::finish;
  switched_ = true;
}

void WeightsUpdate::join(ActorId worker, const Register& info) {
  Member& member = members_[worker_key(worker)];
  member = {};
  member.id = worker;
  uint64_t latest = 0;
  for (const WeightsInfo& set : info.weights) {
    latest = std::max(latest, set.version);
    member.holds[set.version] = {HoldState::committed, 0, true, false, 0};
  }
  for (const WeightsInfo& set : info.weights) {
    if (set.version == latest && latest > current_.number) adopt(set);
  }
  news_ = true;
}

void WeightsUpdate::leave(ActorId worker, Micros now) {
  if (find(worker) == nullptr) return;
  members_.erase(worker_key(worker));
  if (candidate_ && members_.empty()) {
    fail({ErrorCode::unavailable, "the last worker is gone, so nobody can take the weights", 0});
  }
  evaluate(now);
}

void WeightsUpdate::ready(ActorId worker, const WeightsReady& message, Micros now) {
  Member* member = find(worker);
  if (member == nullptr) return;
  const auto found = member->holds.find(message.version);
  if (found == member->holds.end() || found->second.state != HoldState::preparing ||
      found->second.ticket != message.ticket) {
    return;  // of an attempt that was called off
  }
  Hold& hold = found->second;
  hold.state = HoldState::ready;
  counters_.plans_reused += message.plan_reused ? 1 : 0;
  const bool candidate = candidate_ && candidate_->number == message.version;
  Version* known = candidate                            ? &*candidate_
                   : current_.number == message.version ? &current_
                                                        : nullptr;
  if (known == nullptr) return;
  if (known->digest == 0) known->digest = message.digest;
  if (known->digest != message.digest) {
    const std::string text =
        name_of(worker) + " read other bytes under " + known->source.path +
        " than the workers before it; every host needs the same file under that path";
    if (candidate) return fail({ErrorCode::conflict, text, 0});
    unwanted_.push_back({worker, WeightsAction::abort, {message.version, message.ticket, {}}});
    hold.state = HoldState::failed;
    hold.retry_at = now + kRetryUs;
    member->trouble = text;
    return;
  }
  if (candidate) reported_digest_ = message.digest;
  news_ = true;
  evaluate(now);
}

void WeightsUpdate::failed(ActorId worker, const WeightsFailed& message, Micros now) {
  Member* member = find(worker);
  if (member == nullptr) return;
  const auto found = member->holds.find(message.version);
  if (found == member->holds.end() || found->second.state != HoldState::preparing ||
      found->second.ticket != message.ticket) {
    return;
  }
  found->second.state = HoldState::failed;
  found->second.retry_at = now + kRetryUs;
  member->trouble = number_text(message.version) + ": " + message.refusal.text;
  if (candidate_ && candidate_->number == message.version) {
    fail({message.refusal.code, name_of(worker) + ": " + message.refusal.text, 0});
  }
}

void WeightsUpdate::confirmed(ActorId worker, const WeightsCommitted& message, Micros now) {
  Member* member = find(worker);
  if (member == nullptr) return;
  const auto found = member->holds.find(message.version);
  if (found == member->holds.end() || found->second.state != HoldState::committed) return;
  if (!std::exchange(found->second.confirmed, true)) news_ = true;
  if (message.version == current_.number) member->trouble.clear();
  evaluate(now);
}

void WeightsUpdate::dropped(ActorId worker, const WeightsDropped& message) {
  Member* member = find(worker);
  if (member == nullptr) return;
  const auto found = member->holds.find(message.version);
  if (found == member->holds.end() || found->second.state != HoldState::dropping) return;
  member->holds.erase(found);
  ++counters_.dropped;
  news_ = true;
}

// ---------------------------------------------------------------- the update

bool WeightsUpdate::knows(const std::string& token) const {
  return !token.empty() && token == ask_.token;
}

std::optional<Refusal> WeightsUpdate::begin(const UpdateWeights& ask, uint64_t ticket, Micros now) {
  const auto refuse = [&](ErrorCode code, std::string text) {
    ++counters_.refused;
    return Refusal{code, std::move(text), code == ErrorCode::conflict ? 1000 : 0};
  };
  if (phase_ != UpdatePhase::idle && phase_ != UpdatePhase::failed) {
    return refuse(ErrorCode::conflict,
                  "an update to " + number_text(reported_version_) + " of the weights is " +
                      phase_name(phase_) +
                      (bound_to(previous()) > 0
                           ? " (" + std::to_string(bound_to(previous())) +
                                 " requests still run on " + number_text(previous()) + ")"
                           : "") +
                      "; one at a time: try again when it is over");
  }
  if (auto fault = find_ask_fault(ask)) {
    ++counters_.refused;
    return fault;
  }
  if (members_.empty()) {
    return refuse(ErrorCode::unavailable, "no worker has joined that could take the weights");
  }
  const uint64_t number = ask.version != 0 ? ask.version : highest_ + 1;
  if (number <= highest_) {
    return refuse(ErrorCode::invalid_argument, number_text(number) +
                                                   " of the weights is not newer than " +
                                                   number_text(highest_) +
                                                   ", which was committed before; give a greater "
                                                   "number, or none");
  }
  ++counters_.updates;
  ask_ = ask;
  candidate_ = Version{number, 0, ticket, ask.source};
  phase_ = UpdatePhase::preparing;
  refusal_ = {};
  reported_version_ = number;
  reported_digest_ = 0;
  prepare_us_ = 0;
  begun_at_ = now;
  const Micros timeout =
      ask.timeout_ms > 0
          ? std::min<Micros>(ask.timeout_ms, kLongestTimeout / kMillisecond) * kMillisecond
          : limits_.weights_prepare_us;
  due_ = now + timeout;
  news_ = true;
  return std::nullopt;
}

// Nothing has changed: what is prepared goes by the rules.
void WeightsUpdate::fail(Refusal refusal) {
  CHECK(candidate_);
  for (auto& [key, member] : members_) {
    const auto hold = member.holds.find(candidate_->number);
    if (hold != member.holds.end() && hold->second.state == HoldState::failed) {
      member.holds.erase(hold);
      member.trouble.clear();
    }
  }
  candidate_.reset();
  due_ = kNever;
  phase_ = UpdatePhase::failed;
  refusal_ = std::move(refusal);
  ++counters_.failed;
  news_ = true;
}

void WeightsUpdate::commit(Micros now) {
  prepare_us_ = now - begun_at_;
  due_ = kNever;
  if (ask_.dry_run) {
    candidate_.reset();
    phase_ = UpdatePhase::idle;
    news_ = true;
    return;
  }
  previous_ = std::exchange(current_, std::move(*candidate_));
  candidate_.reset();
  highest_ = current_.number;
  phase_ = UpdatePhase::committing;
  ++counters_.committed;
  switched_ = news_ = true;
}

void WeightsUpdate::evaluate(Micros now) {
  const auto all = [&](auto&& holds) {
    return std::all_of(members_.begin(), members_.end(), [&](const auto& entry) {
      const auto hold = entry.second.holds.find(reported_version_);
      return hold != entry.second.holds.end() && holds(hold->second);
    });
  };
  if (phase_ == UpdatePhase::preparing && !members_.empty() &&
      all([](const Hold& hold) { return hold.state == HoldState::ready; })) {
    commit(now);
  }
  // Who joined since and is behind does not hold it up.
  const auto pending = [&](const auto& entry) {
    const auto hold = entry.second.holds.find(reported_version_);
    return hold != entry.second.holds.end() &&
           (hold->second.state == HoldState::ready ||
            (hold->second.state == HoldState::committed && !hold->second.confirmed));
  };
  if (phase_ == UpdatePhase::committing &&
      std::none_of(members_.begin(), members_.end(), pending)) {
    phase_ = UpdatePhase::retiring;
    news_ = true;
  }
}

void WeightsUpdate::tick(Micros now) {
  if (phase_ != UpdatePhase::preparing || now < due_) return;
  std::string late;
  for (const auto& [key, member] : members_) {
    const auto hold = member.holds.find(candidate_->number);
    if (hold != member.holds.end() && hold->second.state == HoldState::ready) continue;
    late += (late.empty() ? "" : ", ") + name_of(member.id);
  }
  fail({ErrorCode::deadline_exceeded,
        "the weights were not prepared within " +
            std::to_string((due_ - begun_at_) / kMillisecond) + " ms on " + late,
        0});
}

// ---------------------------------------------------------------- requests

void WeightsUpdate::bind(uint64_t& bound, uint64_t version) {
  if (bound == version) return;
  if (bound != 0) {
    const auto found = bound_.find(bound);
    CHECK(found != bound_.end() && found->second > 0);
    if (--found->second == 0) {
      if (bound == previous()) news_ = true;
      bound_.erase(found);
    }
  }
  if (version != 0) ++bound_[version];
  bound = version;
}

uint64_t WeightsUpdate::bound_to(uint64_t version) const {
  const auto found = bound_.find(version);
  return found == bound_.end() ? 0 : found->second;
}

bool WeightsUpdate::keeps(uint64_t version) const {
  return previous_ && version == previous_->number && bound_to(version) > 0;
}

}  // namespace baton
