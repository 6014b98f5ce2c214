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
#include "actors/scheduler/sites.h"
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
  std::vector<uint32_t> ended;                  // choices, likewise

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
  Usage usage;

  // Numbers of the choices that have not ended.
  std::vector<uint32_t> choices() const {
    std::vector<uint32_t> running;
    for (uint32_t choice = 0; choice < ask.n; ++choice) {
      if (!std::binary_search(ended.begin(), ended.end(), choice)) running.push_back(choice);
    }
    return running;
  }
  std::vector<TokenId> committed_of(uint32_t choice) const {
    return choice < committed.size() ? committed[choice] : std::vector<TokenId>{};
  }
  // What is left to do. A single choice's committed tokens are prefilled with the prompt; several
  // choices share the prompt's blocks alone, and each computes its own tokens.
  Remainder remainder() const {
    Remainder left;
    uint64_t most = 0;
    const std::vector<uint32_t> running = choices();
    for (const uint32_t choice : running) {
      if (choice < committed.size()) most = std::max<uint64_t>(most, committed[choice].size());
    }
    left.choices = static_cast<uint32_t>(running.size());
    (running.size() == 1 ? left.carried : left.own) = most;
    return left;
  }
  // Positions that prefill computes.
  uint64_t prefill_tokens() const { return ask.ids.size() + remainder().carried; }
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
