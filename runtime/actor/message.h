#pragma once

#include <concepts>
#include <cstdint>
#include <string>

#include "runtime/actor/actor_id.h"
#include "runtime/base/fields.h"
#include "runtime/base/ids.h"
#include "runtime/base/result.h"
#include "runtime/base/time.h"

namespace baton {

// Every kind of message, on the wire and off it. A number is never reused; append only.
enum class MsgKind : uint16_t {
  // Worker and scheduler
  register_worker = 1,
  welcome = 2,
  refused = 3,
  beat = 4,
  beat_ack = 5,
  peer_down = 6,
  drain = 7,
  drained = 8,
  link_up = 9,
  link_down = 10,
  undeliverable = 11,
  actor_down = 12,
  stop_asked = 13,
  stop = 14,
  connect = 15,
  connected = 16,
  connect_failed = 17,
  // Client and gateway
  submit = 20,
  accepted = 21,
  client_refused = 22,
  fetch = 23,
  client_ack = 24,
  client_cancel = 25,
  client_tokens = 26,
  client_done = 27,
  client_beat = 28,
  client_gone = 29,
  status_query = 30,
  status_reply = 31,
  model_query = 32,
  model_reply = 33,
  client_hello = 34,
  client_bad_frame = 35,
  update_weights = 36,
  update_report = 37,
  // Gateway and scheduler
  admit = 40,
  admitted = 41,
  admit_refused = 42,
  cancel = 43,
  freeze = 44,
  frozen = 45,
  done = 46,
  done_ack = 47,
  failed = 48,
  cluster_query = 49,
  cluster_reply = 50,
  // Scheduler and decode
  reserve = 60,
  reserved = 61,
  reserve_refused = 62,
  release = 63,
  slot_freed = 64,
  preempted = 65,
  adopted = 66,
  adopt_failed = 67,
  start = 68,
  // Scheduler and prefill
  run = 80,
  run_refused = 81,
  prefill_done = 82,
  prefill_failed = 83,
  cancelled = 84,
  // Prefill and decode
  kv_post = 100,
  kv_done = 101,
  kv_nack = 102,
  adopt = 103,
  // Prefill or decode and gateway
  tokens = 120,
  tokens_ack = 121,
  resend = 122,
  prompt_scores = 123,
  // Scheduler and worker: weights
  weights_prepare = 130,
  weights_ready = 131,
  weights_failed = 132,
  weights_commit = 133,
  weights_committed = 134,
  weights_abort = 135,
  weights_drop = 136,
  weights_dropped = 137,
  // Completions and timers, within one rank
  timer = 200,
  step_done = 201,
  kv_sent = 202,
  kv_received = 203,
  prepared = 204,
  weights_prepared = 205,
};

// True if `value` is one of the kinds above: what came from outside is checked before the cast.
bool msg_kind_known(uint16_t value) noexcept;
const char* msg_kind_name(MsgKind kind) noexcept;

constexpr bool enum_valid(ErrorCode code) {
  return code <= ErrorCode::internal;
}

// A message is a plain struct with its kind and its fields in wire order:
//   struct Cancel { static constexpr MsgKind kind = MsgKind::cancel; ...; BATON_FIELDS(request) };
// Fields are only ever appended. runtime/actor/wire.h turns it into msgpack and back.
template <class M>
concept Message = std::default_initializable<M> && requires(M m) {
  { M::kind } -> std::convertible_to<MsgKind>;
  m.fields();
};

// The list of messages that an actor accepts: its whole public face.
template <Message... Ms>
struct MessageList {};

// What surrounds every message between actors.
struct Envelope {
  uint16_t version = 1;
  MsgKind kind = MsgKind::timer;
  ActorId from;
  ActorId to;
  uint64_t link_seq = 0;  // transport/control: position in the session, 0 = unsequenced
  uint64_t link_ack = 0;  // transport/control: all up to here have arrived
  RequestId request;      // 0 where no request is meant
  Epoch epoch;
  uint64_t correlation = 0;      // copied from a question to its answer
  Micros remaining_us = kNever;  // time left when it was sent; never an instant
  std::string trace;             // W3C traceparent, may be empty
};

// One message under way: the envelope, and the body as msgpack bytes.
struct Mail {
  Envelope envelope;
  std::string body;
};

}  // namespace baton
