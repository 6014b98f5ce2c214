#include "actors/scheduler/request_ledger.h"

#include <array>
#include <initializer_list>

namespace baton {
namespace {

using enum RequestState;
using enum RequestEvent;
using enum RequestAction;

template <class Enum>
class Set {
 public:
  constexpr Set(std::initializer_list<Enum> members) {
    for (const Enum member : members) bits_ |= 1u << static_cast<unsigned>(member);
  }
  constexpr bool contains(Enum member) const {
    return (bits_ >> static_cast<unsigned>(member)) & 1u;
  }

 private:
  uint32_t bits_ = 0;
};

class Actions {
 public:
  constexpr Actions(std::initializer_list<RequestAction> actions) {
    for (const RequestAction action : actions) items_[size_++] = action;
  }
  constexpr std::span<const RequestAction> span() const { return {items_.data(), size_}; }

 private:
  std::array<RequestAction, 6> items_{};
  size_t size_ = 0;
};

struct Row {
  Set<RequestState> states;
  Set<RequestEvent> events;
  Actions actions;
  RequestState next;
};

constexpr Set<RequestState> kAnyLive = {queued, reserving, prefill, transfer,
                                        decode, freezing,  closing};

// The ledger of protocol.md. The first row that matches counts; what matches none is dropped and
// counted (so every terminal state keeps its place). Rows beyond protocol.md say so.
// clang-format off
constexpr Row kRows[] = {
    // QUEUED
    {{queued}, {capacity}, {send_reserve}, reserving},
    // Beyond: nobody is left who could run it.
    {{queued}, {starved}, {tell_gateway}, failed},

    // RESERVING
    {{reserving}, {reserved}, {send_run}, prefill},
    // Beyond: the decode actor prefills the prompt itself; its Adopted says that it has begun.
    {{reserving}, {reserved_local}, {send_start, forget_source}, transfer},
    {{reserving}, {reserve_refused, stage_timeout, decode_down},
     {cancel_target, raise_epoch, readmit, requeue_head}, queued},
    // Beyond: the source that the reservation was made for is gone, or the decode actor gave the
    // reservation up by itself; nothing has run.
    {{reserving}, {prefill_down, slot_freed},
     {cancel_target, raise_epoch, readmit, requeue_head}, queued},
    // Beyond: the request is at fault; a retry would fail too.
    {{reserving}, {reserve_rejected}, {cancel_target, tell_gateway}, failed},

    // PREFILL
    {{prefill}, {prefill_done}, {}, transfer},
    {{prefill}, {prefill_finished}, {cancel_target, forget_target}, closing},
    {{prefill}, {adopted}, {activate_lease}, decode},
    {{prefill}, {run_refused, prefill_failed, stage_timeout, prefill_down, decode_down},
     {cancel_source, cancel_target, raise_epoch, count_attempt, freeze}, freezing},
    // Beyond: the decode actor's own lease on the reservation ran out.
    {{prefill}, {adopt_failed, slot_freed},
     {cancel_source, cancel_target, raise_epoch, count_attempt, freeze}, freezing},
    // Beyond: the request is at fault.
    {{prefill, transfer}, {prefill_rejected}, {cancel_source, cancel_target, tell_gateway}, failed},

    // TRANSFER
    {{transfer}, {adopted}, {activate_lease}, decode},
    {{transfer}, {adopt_failed, prefill_failed, stage_timeout, prefill_down, decode_down},
     {cancel_source, cancel_target, raise_epoch, count_attempt, freeze}, freezing},
    // Beyond: as in PREFILL.
    {{transfer}, {slot_freed},
     {cancel_source, cancel_target, raise_epoch, count_attempt, freeze}, freezing},

    // DECODE
    {{decode}, {prefill_down}, {forget_source}, decode},
    {{decode}, {slot_freed}, {forget_source}, closing},
    {{decode}, {preempted}, {cancel_target, raise_epoch, freeze}, freezing},
    {{decode}, {decode_down}, {raise_epoch, count_attempt, freeze}, freezing},
    // Beyond: Adopted came first (another link), or is said again when a local prefill is done; the
    // usage is all that is new.
    {{decode}, {prefill_done, adopted}, {}, decode},

    // Beyond: other weights are committed, and the request is to go on with them.
    {{reserving}, {weights_changed}, {cancel_target, raise_epoch, readmit, requeue_head}, queued},
    {{prefill, transfer, decode}, {weights_changed},
     {cancel_source, cancel_target, raise_epoch, freeze}, freezing},

    // FREEZING
    {{freezing}, {frozen}, {requeue_head}, queued},
    {{freezing}, {frozen_complete}, {}, closing},
    {{freezing}, {attempts_exhausted}, {tell_gateway}, failed},
    // Beyond: a gateway that does not answer must not hold the row for ever.
    {{freezing}, {stage_timeout}, {tell_gateway}, failed},

    // CLOSING
    {{closing}, {stage_timeout}, {raise_epoch, freeze}, freezing},
    // Beyond: its last tokens may have died with the worker; ask now, not when the time is up.
    {{closing}, {prefill_down, decode_down}, {raise_epoch, freeze}, freezing},
    // Nothing is held any more.
    {{closing}, {done}, {ack_done}, finished},
    {{closing}, {done_failed}, {ack_done}, failed},

    // any live
    {kAnyLive, {done}, {cancel_source, cancel_target, ack_done}, finished},
    {kAnyLive, {done_failed}, {cancel_source, cancel_target, ack_done}, failed},
    {kAnyLive, {cancel}, {cancel_source, cancel_target, tell_gateway}, cancelled},
    {kAnyLive, {deadline}, {cancel_source, cancel_target, tell_gateway}, failed},
    // Beyond: other weights are committed, and running requests were to end.
    {kAnyLive, {weights_aborted}, {cancel_source, cancel_target, tell_gateway}, failed},
    // No job is durable, so none outlives its gateway.
    {kAnyLive, {gateway_down}, {cancel_source, cancel_target}, cancelled},
};
// clang-format on

constexpr uint8_t kNoRow = 255;
using Index = std::array<std::array<uint8_t, kRequestEvents>, kRequestStates>;

constexpr Index build_index() {
  Index index{};
  for (size_t state = 0; state < kRequestStates; ++state) {
    for (size_t event = 0; event < kRequestEvents; ++event) {
      index[state][event] = kNoRow;
      for (size_t row = 0; row < std::size(kRows); ++row) {
        if (kRows[row].states.contains(static_cast<RequestState>(state)) &&
            kRows[row].events.contains(static_cast<RequestEvent>(event))) {
          index[state][event] = static_cast<uint8_t>(row);
          break;
        }
      }
    }
  }
  return index;
}

constexpr Index kIndex = build_index();
static_assert(std::size(kRows) < kNoRow);
static_assert(static_cast<size_t>(failed) + 1 == kRequestStates);
static_assert(static_cast<size_t>(weights_aborted) + 1 == kRequestEvents);

constexpr std::array<const char*, kRequestStates> kStateNames = {
    "queued",   "reserving", "prefill",  "transfer",  "decode",
    "freezing", "closing",   "finished", "cancelled", "failed"};

constexpr std::array<const char*, kRequestEvents> kEventNames = {"capacity",
                                                                 "starved",
                                                                 "reserved",
                                                                 "reserve_refused",
                                                                 "reserve_rejected",
                                                                 "run_refused",
                                                                 "prefill_done",
                                                                 "prefill_finished",
                                                                 "prefill_failed",
                                                                 "prefill_rejected",
                                                                 "adopted",
                                                                 "adopt_failed",
                                                                 "slot_freed",
                                                                 "preempted",
                                                                 "prefill_down",
                                                                 "decode_down",
                                                                 "gateway_down",
                                                                 "stage_timeout",
                                                                 "frozen",
                                                                 "frozen_complete",
                                                                 "attempts_exhausted",
                                                                 "done",
                                                                 "done_failed",
                                                                 "cancel",
                                                                 "deadline",
                                                                 "reserved_local",
                                                                 "weights_changed",
                                                                 "weights_aborted"};

}  // namespace

const char* request_state_name(RequestState state) noexcept {
  return kStateNames[static_cast<size_t>(state)];
}

const char* request_event_name(RequestEvent event) noexcept {
  return kEventNames[static_cast<size_t>(event)];
}

Transition transition(RequestState state, RequestEvent event) noexcept {
  const uint8_t row = kIndex[static_cast<size_t>(state)][static_cast<size_t>(event)];
  if (row == kNoRow) return {state, {}, true};
  return {kRows[row].next, kRows[row].actions.span(), false};
}

}  // namespace baton
