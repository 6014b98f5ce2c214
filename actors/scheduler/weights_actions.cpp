// What follows from what is there and what should be: messages to workers, news for clients.

#include <algorithm>
#include <array>
#include <functional>
#include <set>
#include <utility>

#include "actors/scheduler/weights_update.h"

namespace baton {
namespace {

constexpr size_t kHolds = 6;
constexpr size_t kWants = 4;
using enum WeightsAction;

// Rows: what is there. Columns: nothing, prepared, committed, kept.
constexpr std::array<std::array<WeightsAction, kWants>, kHolds> kActions = {{
    {none, prepare, prepare, none},  // none
    {abort, none, none, abort},      // preparing
    {abort, none, commit, abort},    // ready
    {drop, none, none, none},        // committed
    {none, none, none, none},        // dropping: it says when it is gone
    {none, none, prepare, none},     // failed: the update ends; who is behind is asked again
}};

}  // namespace

WeightsAction weights_action(HoldState hold, WantState want) noexcept {
  return kActions[static_cast<size_t>(hold)][static_cast<size_t>(want)];
}

size_t WeightsUpdate::in_memory(const Member& member) const {
  return static_cast<size_t>(
      std::count_if(member.holds.begin(), member.holds.end(), [](const auto& entry) {
        return entry.second.state != HoldState::none && entry.second.state != HoldState::failed;
      }));
}

// A worker is never left without weights.
bool WeightsUpdate::may_drop(const Member& member, uint64_t number) const {
  return std::any_of(member.holds.begin(), member.holds.end(), [&](const auto& entry) {
    return entry.first != number && entry.second.state == HoldState::committed;
  });
}

void WeightsUpdate::perform(Member& member, uint64_t number, WeightsAction action,
                            std::vector<Command>& out) {
  Command command{member.id, action, {number, 0, {}}};
  Hold& hold = member.holds[number];
  switch (action) {
    case WeightsAction::none: return;
    case WeightsAction::prepare: {
      const Version& known = *version(number);
      command.order = {number, known.ticket, known.source};
      hold = {HoldState::preparing, known.ticket, false, false, 0};
      break;
    }
    case WeightsAction::abort: hold.state = HoldState::none; break;
    case WeightsAction::commit:
      hold.state = HoldState::committed;
      if (phase_ != UpdatePhase::committing) ++counters_.brought_up;
      break;
    case WeightsAction::drop: hold.state = HoldState::dropping; break;
  }
  out.push_back(std::move(command));
}

std::vector<WeightsUpdate::Command> WeightsUpdate::actions(Micros now) {
  std::vector<Command> out = std::exchange(unwanted_, {});
  for (auto& [key, member] : members_) {
    std::set<uint64_t, std::greater<>> numbers;  // what is committed makes room for older ones
    for (const auto& [number, hold] : member.holds) numbers.insert(number);
    if (current_.number != 0) numbers.insert(current_.number);
    if (candidate_) numbers.insert(candidate_->number);
    for (const uint64_t number : numbers) {
      const Hold hold = member.holds[number];
      const WeightsAction action = weights_action(hold.state, want(number));
      if (action == WeightsAction::drop && !may_drop(member, number)) continue;
      if (action == WeightsAction::prepare &&
          (version(number)->source.path.empty() || now < hold.retry_at ||
           in_memory(member) >= limits_.weight_sets_max)) {
        continue;
      }
      perform(member, number, action, out);
    }
    std::erase_if(member.holds, [&](const auto& entry) {
      const HoldState state = entry.second.state;
      const bool given_up = state == HoldState::failed && want(entry.first) == WantState::nothing;
      return state == HoldState::none || given_up;
    });
  }
  retire();
  return out;
}

// The old version is over when no request runs on it and every worker that has the current one has
// let go of it. Who is behind keeps it until it has caught up, and holds nothing up.
void WeightsUpdate::retire() {
  if (!previous_ || phase_ == UpdatePhase::committing || bound_to(previous_->number) > 0) return;
  const bool held = std::any_of(members_.begin(), members_.end(), [&](const auto& entry) {
    return entry.second.holds.contains(previous_->number) &&
           may_drop(entry.second, previous_->number);
  });
  if (held) return;
  previous_.reset();
  if (phase_ == UpdatePhase::retiring) phase_ = UpdatePhase::idle;
  news_ = true;
}

bool WeightsUpdate::take_switch() {
  return std::exchange(switched_, false);
}

bool WeightsUpdate::take_news() {
  return std::exchange(news_, false);
}

uint32_t WeightsUpdate::done_count() const {
  return static_cast<uint32_t>(
      std::count_if(members_.begin(), members_.end(), [&](const auto& entry) {
        const auto hold = entry.second.holds.find(reported_version_);
        if (hold == entry.second.holds.end()) return false;
        return phase_ == UpdatePhase::preparing ? hold->second.state == HoldState::ready
                                                : hold->second.confirmed;
      }));
}

UpdateReport WeightsUpdate::report() const {
  UpdateReport report;
  report.token = ask_.token;
  report.phase = phase_;
  report.version = reported_version_;
  report.digest = reported_digest_;
  report.workers = static_cast<uint32_t>(members_.size());
  report.workers_done = done_count();
  report.old_requests = previous_ ? bound_to(previous_->number) : 0;
  report.prepare_us = prepare_us_;
  report.refusal = refusal_;
  report.last = phase_ == UpdatePhase::idle || phase_ == UpdatePhase::failed ||
                (phase_ == UpdatePhase::retiring && !ask_.wait_retired);
  return report;
}

std::vector<uint64_t> WeightsUpdate::served_by(ActorId worker) const {
  std::vector<uint64_t> versions;
  const Member* member = find(worker);
  if (member == nullptr) return versions;
  for (const auto& [number, hold] : member->holds) {
    if (hold.state == HoldState::committed) versions.push_back(number);
  }
  return versions;
}

std::string WeightsUpdate::trouble(ActorId worker) const {
  const Member* member = find(worker);
  if (member == nullptr) return "";
  const auto hold = member->holds.find(current_.number);
  const bool up_to_date = hold != member->holds.end() && hold->second.state == HoldState::committed;
  if (up_to_date) return "";
  if (!member->trouble.empty()) return member->trouble;
  return "is brought to version " + std::to_string(current_.number) + " of the weights";
}

}  // namespace baton
