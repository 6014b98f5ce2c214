#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/protocol/scheduler.h"
#include "actors/scheduler/request_ledger.h"
#include "runtime/actor/actor_id.h"
#include "runtime/base/ids.h"
#include "runtime/base/time.h"

namespace baton {

// One row of the request ledger.
struct LedgerRow {
  RequestId id;
  RequestState state = RequestState::queued;
  Epoch epoch{1};  // fences the lives of the request
  ActorId gateway;
  Admit ask;
  std::vector<std::vector<TokenId>> committed;  // per choice, as of the last Frozen

  uint64_t arrival = 0;  // keeps its place among retries
  Micros admitted_at = 0;
  Micros deadline = kNever;   // of the client
  Micros stage_due = kNever;  // of the state, in the scheduler's awake time
  uint64_t stage_steps = 0;   // engine steps of its prefill actor when the stage began
  int stage_extensions = 0;   // how often that actor's progress has prolonged the stage

  std::optional<ActorId> source;  // its prefill actor, while that has a part in it
  std::optional<ActorId> target;  // its decode actor
  TransferId transfer;
  uint32_t tag_first = 0;

  uint32_t attempts = 0;  // retries after failures: a budget
  uint32_t deaths = 0;    // workers that died with it: of those it may have killed
  bool ran = false;       // Run was sent, in some life
  std::string lost;       // what ended its last life
  uint64_t numerics_id = 0;
  uint64_t weights = 0;  // version that it runs on; 0 while it waits for its first run
  Usage usage;

  uint64_t committed_tokens() const {
    uint64_t most = 0;
    for (const auto& choice : committed) most = std::max<uint64_t>(most, choice.size());
    return most;
  }
};

// The rows that are not terminal, and what falls due on them, in order. Owned by the scheduler,
// its thread only. A row stays where it is until it is erased.
class LiveRequests {
 public:
  // Precondition: the id is not here.
  LedgerRow& add(LedgerRow row);
  LedgerRow* find(RequestId id);
  void erase(RequestId id);
  size_t size() const { return rows_.size(); }

  void set_state(LedgerRow& row, RequestState state);
  void set_stage_due(LedgerRow& row, Micros due);
  // A row whose client's deadline, or whose stage, has passed at that instant; null if none has.
  LedgerRow* deadline_passed(Micros now);
  LedgerRow* stage_passed(Micros awake_now);

  const std::array<uint64_t, kRequestStates>& by_state() const { return by_state_; }
  std::vector<RequestId> of_gateway(ActorId gateway) const;  // looks at all rows
  std::vector<RequestId> all() const;

 private:
  using Due = std::set<std::pair<Micros, RequestId>>;
  LedgerRow* first_passed(const Due& due, Micros now);

  std::map<RequestId, LedgerRow> rows_;
  Due deadlines_;
  Due stages_;
  std::array<uint64_t, kRequestStates> by_state_{};
};

}  // namespace baton
