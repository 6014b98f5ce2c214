#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

// The request ledger: what may happen to a request, and what follows from it. Pure: a table and a
// look-up. The scheduler turns messages into events, asks here, and turns the actions into
// messages. protocol.md's ledger is the table in request_ledger.cpp, row by row.

namespace baton {

enum class RequestState : uint8_t {
  queued,     // waits for capacity
  reserving,  // Reserve sent to a decode actor
  prefill,    // Run sent to a prefill actor
  transfer,   // computed; its KV is on its way
  decode,     // adopted: the decode actor owns it
  freezing,   // lost its worker; the gateway is asked what is committed
  closing,    // every token was produced; the gateway's Done is awaited
  finished,   // terminal from here on
  cancelled,
  failed,
};
inline constexpr size_t kRequestStates = 10;
constexpr bool is_terminal(RequestState state) {
  return state >= RequestState::finished;
}
const char* request_state_name(RequestState state) noexcept;

enum class RequestEvent : uint8_t {
  capacity,            // a prefill and a decode instance can take it
  starved,             // no instance that could ever take it has been alive for too long
  reserved,            // Reserved
  reserve_refused,     // ReserveRefused: not now
  reserve_rejected,    // ReserveRefused: not ever, the request is at fault
  run_refused,         // RunRefused: not now
  prefill_done,        // PrefillDone, a transfer follows
  prefill_finished,    // PrefillDone, every choice ended with its first token
  prefill_failed,      // PrefillFailed, retryable (a refused piece included)
  prefill_rejected,    // PrefillFailed or RunRefused: the request is at fault
  adopted,             // Adopted
  adopt_failed,        // AdoptFailed
  slot_freed,          // SlotFreed of the last choice
  preempted,           // Preempted
  prefill_down,        // its prefill actor's life has ended
  decode_down,         // its decode actor's life has ended
  gateway_down,        // its gateway's life has ended
  stage_timeout,       // its stage has lasted too long
  frozen,              // Frozen, tokens are missing
  frozen_complete,     // Frozen, the stream has all its tokens
  attempts_exhausted,  // Frozen, tokens are missing, but no retry is left
  done,                // Done with a result
  done_failed,         // Done with outcome error
  cancel,              // Cancel from the gateway, or Done with outcome cancelled
  deadline,            // the client's time is up, or the cluster is being shut down
  reserved_local,      // Reserved, and the decode actor will compute the prompt itself
  weights_changed,     // other weights are committed: it goes on with those
  weights_aborted,     // other weights are committed: it ends
};
inline constexpr size_t kRequestEvents = 28;
const char* request_event_name(RequestEvent event) noexcept;

// In the order in which they are to be done. What concerns the lost life comes before raise_epoch
// and so carries its epoch.
enum class RequestAction : uint8_t {
  send_reserve,    // mint a transfer, Reserve to the decode actor
  send_run,        // Run to the prefill actor
  send_start,      // Start to the decode actor
  activate_lease,  // the slots are ACTIVE now; prefill's hold was freed by the decode actor
  cancel_source,   // Cancel to the prefill actor, if it holds something
  cancel_target,   // Release or Cancel to the decode actor, if it holds something; quarantine
  raise_epoch,
  count_attempt,
  freeze,         // Freeze with the new epoch to the gateway
  readmit,        // Admitted with the new epoch to the gateway
  requeue_head,   // in front of everything that has not run yet
  tell_gateway,   // Failed with the reason: the terminal event
  ack_done,       // DoneAck: the gateway has had the terminal event
  forget_source,  // prefill has no part in it any more
  forget_target,  // decode has no part in it any more
};

// What an event does. `dropped`: nothing but being counted; `next` is the state it was in.
struct Transition {
  RequestState next = RequestState::queued;
  std::span<const RequestAction> actions;
  bool dropped = false;
};

// Defined for every pair.
Transition transition(RequestState state, RequestEvent event) noexcept;

}  // namespace baton
