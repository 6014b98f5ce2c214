#include "actors/scheduler/live_requests.h"

#include "runtime/base/check.h"

namespace baton {

LedgerRow& LiveRequests::add(LedgerRow row) {
  const RequestId id = row.id;
  const auto [entry, fresh] = rows_.emplace(id, std::move(row));
  CHECK(fresh);
  ++by_state_[static_cast<size_t>(entry->second.state)];
  if (entry->second.deadline != kNever) deadlines_.emplace(entry->second.deadline, id);
  if (entry->second.stage_due != kNever) stages_.emplace(entry->second.stage_due, id);
  return entry->second;
}

LedgerRow* LiveRequests::find(RequestId id) {
  const auto found = rows_.find(id);
  return found == rows_.end() ? nullptr : &found->second;
}

void LiveRequests::erase(RequestId id) {
  const auto found = rows_.find(id);
  CHECK(found != rows_.end());
  const LedgerRow& row = found->second;
  deadlines_.erase({row.deadline, id});
  stages_.erase({row.stage_due, id});
  --by_state_[static_cast<size_t>(row.state)];
  rows_.erase(found);
}

void LiveRequests::set_state(LedgerRow& row, RequestState state) {
  --by_state_[static_cast<size_t>(row.state)];
  ++by_state_[static_cast<size_t>(state)];
  row.state = state;
}

void LiveRequests::set_stage_due(LedgerRow& row, Micros due) {
  stages_.erase({row.stage_due, row.id});
  row.stage_due = due;
  if (due != kNever) stages_.emplace(due, row.id);
}

LedgerRow* LiveRequests::first_passed(const Due& due, Micros now) {
  if (due.empty() || due.begin()->first > now) return nullptr;
  return find(due.begin()->second);
}

LedgerRow* LiveRequests::deadline_passed(Micros now) {
  return first_passed(deadlines_, now);
}

LedgerRow* LiveRequests::stage_passed(Micros awake_now) {
  return first_passed(stages_, awake_now);
}

std::vector<RequestId> LiveRequests::of_gateway(ActorId gateway) const {
  std::vector<RequestId> found;
  for (const auto& [id, row] : rows_) {
    if (row.gateway == gateway) found.push_back(id);
  }
  return found;
}

std::vector<RequestId> LiveRequests::all() const {
  std::vector<RequestId> ids;
  for (const auto& [id, row] : rows_) ids.push_back(id);
  return ids;
}

}  // namespace baton
