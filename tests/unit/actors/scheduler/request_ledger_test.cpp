#include "actors/scheduler/request_ledger.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

using namespace baton;
using enum RequestState;
using enum RequestEvent;
using enum RequestAction;

namespace {

using Actions = std::vector<RequestAction>;

const std::vector<RequestState> kLive = {queued, reserving, prefill, transfer,
                                         decode, freezing,  closing};
const std::vector<RequestState> kTerminal = {finished, cancelled, failed};

std::vector<RequestEvent> all_events() {
  std::vector<RequestEvent> events;
  for (size_t event = 0; event < kRequestEvents; ++event) {
    events.push_back(static_cast<RequestEvent>(event));
  }
  return events;
}

void check_row(RequestState state, const std::vector<RequestEvent>& events, const Actions& actions,
               RequestState next) {
  for (const RequestEvent event : events) {
    INFO(request_state_name(state), " + ", request_event_name(event));
    const Transition change = transition(state, event);
    CHECK_FALSE(change.dropped);
    CHECK(change.next == next);
    CHECK(Actions(change.actions.begin(), change.actions.end()) == actions);
  }
}

bool has(const Transition& change, RequestAction action) {
  return std::find(change.actions.begin(), change.actions.end(), action) != change.actions.end();
}

const Actions kRetry = {cancel_source, cancel_target, raise_epoch, count_attempt, freeze};
const Actions kBackInLine = {cancel_target, raise_epoch, readmit, requeue_head};

}  // namespace

// ---------------------------------------------------------------- the rows of the protocol

TEST_CASE("QUEUED, capacity: Reserve, RESERVING") {
  check_row(queued, {capacity}, {send_reserve}, reserving);
}
TEST_CASE("RESERVING, Reserved: Run, PREFILL") {
  check_row(reserving, {reserved}, {send_run}, prefill);
}
TEST_CASE("RESERVING, Reserved for a local prefill: Start, the source is not needed, TRANSFER") {
  check_row(reserving, {reserved_local}, {send_start, forget_source}, transfer);
}
TEST_CASE("RESERVING, refused, timeout or D down: Release, epoch+1, QUEUED") {
  check_row(reserving, {reserve_refused, stage_timeout, decode_down}, kBackInLine, queued);
}
TEST_CASE("PREFILL, PrefillDone: start timer, TRANSFER") {
  check_row(prefill, {prefill_done}, {}, transfer);
}
TEST_CASE("PREFILL, PrefillDone with all choices finished: Release, CLOSING") {
  check_row(prefill, {prefill_finished}, {cancel_target, forget_target}, closing);
}
TEST_CASE("PREFILL, Adopted early: prefill's hold is freed, DECODE") {
  check_row(prefill, {adopted}, {activate_lease}, decode);
}
TEST_CASE("PREFILL, refused, failed, timeout, P or D down: Cancel P, Release D, retry, FREEZING") {
  check_row(prefill, {run_refused, prefill_failed, stage_timeout, prefill_down, decode_down},
            kRetry, freezing);
}
TEST_CASE("TRANSFER, Adopted: prefill's hold is freed, DECODE") {
  check_row(transfer, {adopted}, {activate_lease}, decode);
}
TEST_CASE("TRANSFER, AdoptFailed, nack, timeout, P or D down: quarantine both, retry, FREEZING") {
  check_row(transfer, {adopt_failed, prefill_failed, stage_timeout, prefill_down, decode_down},
            kRetry, freezing);
}
TEST_CASE("DECODE, P down: nothing, DECODE") {
  check_row(decode, {prefill_down}, {forget_source}, decode);
}
TEST_CASE("DECODE, SlotFreed of the last choice: credit the lease, CLOSING") {
  check_row(decode, {slot_freed}, {forget_source}, closing);
}
TEST_CASE("DECODE, Preempted: epoch+1 without an attempt, FREEZING") {
  check_row(decode, {preempted}, {cancel_target, raise_epoch, freeze}, freezing);
}
TEST_CASE("DECODE, D down: epoch+1, attempts+1, FREEZING") {
  check_row(decode, {decode_down}, {raise_epoch, count_attempt, freeze}, freezing);
}
TEST_CASE("FREEZING, Frozen incomplete: requeue at the head, QUEUED") {
  check_row(freezing, {frozen}, {requeue_head}, queued);
}
TEST_CASE("FREEZING, Frozen complete: CLOSING") {
  check_row(freezing, {frozen_complete}, {}, closing);
}
TEST_CASE("FREEZING, attempts exhausted: tell G, FAILED") {
  check_row(freezing, {attempts_exhausted}, {tell_gateway}, failed);
}
TEST_CASE("any live, Done: DoneAck, Cancel holders, FINISHED or FAILED") {
  for (const RequestState state : kLive) {
    if (state == closing) continue;  // nothing is held
    check_row(state, {done}, {cancel_source, cancel_target, ack_done}, finished);
    check_row(state, {done_failed}, {cancel_source, cancel_target, ack_done}, failed);
  }
  check_row(closing, {done}, {ack_done}, finished);
  check_row(closing, {done_failed}, {ack_done}, failed);
}
TEST_CASE("any live, Cancel or deadline: Cancel holders, tell G, CANCELLED or FAILED") {
  for (const RequestState state : kLive) {
    check_row(state, {cancel}, {cancel_source, cancel_target, tell_gateway}, cancelled);
    check_row(state, {deadline}, {cancel_source, cancel_target, tell_gateway}, failed);
  }
}
TEST_CASE("any live, G down: Cancel holders, CANCELLED") {
  for (const RequestState state : kLive) {
    check_row(state, {gateway_down}, {cancel_source, cancel_target}, cancelled);
  }
}
TEST_CASE("CLOSING, timeout: epoch+1, Freeze, FREEZING") {
  check_row(closing, {stage_timeout}, {raise_epoch, freeze}, freezing);
}
TEST_CASE("terminal, anything: dropped and counted, same") {
  for (const RequestState state : kTerminal) {
    for (const RequestEvent event : all_events()) {
      const Transition change = transition(state, event);
      CHECK(change.dropped);
      CHECK(change.next == state);
      CHECK(change.actions.empty());
    }
  }
}

// ---------------------------------------------------------------- the rows beyond it

TEST_CASE("QUEUED, nobody could ever run it: tell G, FAILED") {
  check_row(queued, {starved}, {tell_gateway}, failed);
}
TEST_CASE("RESERVING, P down or the reservation given up: Release, epoch+1, QUEUED") {
  check_row(reserving, {prefill_down, slot_freed}, kBackInLine, queued);
}
TEST_CASE("RESERVING, the request is at fault: tell G, FAILED") {
  check_row(reserving, {reserve_rejected}, {cancel_target, tell_gateway}, failed);
}
TEST_CASE("PREFILL and TRANSFER, the request is at fault: tell G, FAILED") {
  check_row(prefill, {prefill_rejected}, {cancel_source, cancel_target, tell_gateway}, failed);
  check_row(transfer, {prefill_rejected}, {cancel_source, cancel_target, tell_gateway}, failed);
}
TEST_CASE("PREFILL and TRANSFER, the reservation ended by itself: retry, FREEZING") {
  check_row(prefill, {adopt_failed, slot_freed}, kRetry, freezing);
  check_row(transfer, {slot_freed}, kRetry, freezing);
}
TEST_CASE("DECODE, PrefillDone after Adopted: DECODE") {
  check_row(decode, {prefill_done, adopted}, {}, decode);
}
TEST_CASE("FREEZING, timeout: tell G, FAILED") {
  check_row(freezing, {stage_timeout}, {tell_gateway}, failed);
}
TEST_CASE("CLOSING, P or D down: epoch+1, Freeze, FREEZING") {
  check_row(closing, {prefill_down, decode_down}, {raise_epoch, freeze}, freezing);
}

// ---------------------------------------------------------------- all pairs

TEST_CASE("every pair of state and event is either a row above or dropped in place") {
  const std::set<std::pair<RequestState, RequestEvent>> rows = {{queued, capacity},
                                                                {queued, starved},
                                                                {reserving, reserved},
                                                                {reserving, reserved_local},
                                                                {decode, adopted},
                                                                {reserving, reserve_refused},
                                                                {reserving, stage_timeout},
                                                                {reserving, decode_down},
                                                                {reserving, prefill_down},
                                                                {reserving, slot_freed},
                                                                {reserving, reserve_rejected},
                                                                {prefill, prefill_done},
                                                                {prefill, prefill_finished},
                                                                {prefill, adopted},
                                                                {prefill, run_refused},
                                                                {prefill, prefill_failed},
                                                                {prefill, stage_timeout},
                                                                {prefill, prefill_down},
                                                                {prefill, decode_down},
                                                                {prefill, adopt_failed},
                                                                {prefill, slot_freed},
                                                                {prefill, prefill_rejected},
                                                                {transfer, prefill_rejected},
                                                                {transfer, adopted},
                                                                {transfer, adopt_failed},
                                                                {transfer, prefill_failed},
                                                                {transfer, stage_timeout},
                                                                {transfer, prefill_down},
                                                                {transfer, decode_down},
                                                                {transfer, slot_freed},
                                                                {decode, prefill_down},
                                                                {decode, slot_freed},
                                                                {decode, preempted},
                                                                {decode, decode_down},
                                                                {decode, prefill_done},
                                                                {freezing, frozen},
                                                                {freezing, frozen_complete},
                                                                {freezing, attempts_exhausted},
                                                                {freezing, stage_timeout},
                                                                {closing, stage_timeout},
                                                                {closing, prefill_down},
                                                                {closing, decode_down},
                                                                {reserving, weights_changed},
                                                                {prefill, weights_changed},
                                                                {transfer, weights_changed},
                                                                {decode, weights_changed}};
  const std::set<RequestEvent> any_live = {done,     done_failed,  cancel,
                                           deadline, gateway_down, weights_aborted};
  size_t pairs = 0;
  for (size_t s = 0; s < kRequestStates; ++s) {
    for (const RequestEvent event : all_events()) {
      const auto state = static_cast<RequestState>(s);
      const bool row =
          !is_terminal(state) && (rows.contains({state, event}) || any_live.contains(event));
      INFO(request_state_name(state), " + ", request_event_name(event));
      const Transition change = transition(state, event);
      CHECK(change.dropped == !row);
      if (change.dropped) CHECK(change.next == state);
      if (change.dropped) CHECK(change.actions.empty());
      ++pairs;
    }
  }
  CHECK(pairs == kRequestStates * kRequestEvents);
}

TEST_CASE("a terminal state is entered with exactly one word to the gateway, unless it is gone") {
  for (const RequestState state : kLive) {
    for (const RequestEvent event : all_events()) {
      const Transition change = transition(state, event);
      INFO(request_state_name(state), " + ", request_event_name(event));
      const int words = has(change, tell_gateway) + has(change, ack_done);
      CHECK(words == (is_terminal(change.next) && event != gateway_down ? 1 : 0));
    }
  }
}

TEST_CASE("a new life begins only under a new epoch, and the gateway is told which") {
  for (const RequestState state : kLive) {
    for (const RequestEvent event : all_events()) {
      const Transition change = transition(state, event);
      if (change.dropped) continue;
      INFO(request_state_name(state), " + ", request_event_name(event));
      const bool leaves_worker = change.next == freezing || (change.next == queued);
      if (leaves_worker && state != freezing) CHECK(has(change, raise_epoch));
      CHECK(has(change, raise_epoch) == (has(change, freeze) || has(change, readmit)));
      CHECK(has(change, freeze) == (change.next == freezing && state != freezing));
      CHECK(has(change, requeue_head) == (change.next == queued));
    }
  }
}

TEST_CASE("every state that has a time limit has a way out of it") {
  for (const RequestState state : {reserving, prefill, transfer, freezing, closing}) {
    const Transition change = transition(state, stage_timeout);
    CHECK_FALSE(change.dropped);
    CHECK(change.next != state);
  }
}

TEST_CASE("names of states and events are all different") {
  std::set<std::string> names;
  for (size_t s = 0; s < kRequestStates; ++s) {
    names.insert(request_state_name(static_cast<RequestState>(s)));
  }
  for (const RequestEvent event : all_events()) {
    names.insert(std::string("event ") + request_event_name(event));
  }
  CHECK(names.size() == kRequestStates + kRequestEvents);
}
