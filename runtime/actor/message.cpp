#include "runtime/actor/message.h"

namespace baton {

const char* msg_kind_name(MsgKind kind) noexcept {
  switch (kind) {
    case MsgKind::register_worker: return "register_worker";
    case MsgKind::welcome: return "welcome";
    case MsgKind::refused: return "refused";
    case MsgKind::beat: return "beat";
    case MsgKind::beat_ack: return "beat_ack";
    case MsgKind::peer_down: return "peer_down";
    case MsgKind::drain: return "drain";
    case MsgKind::drained: return "drained";
    case MsgKind::link_up: return "link_up";
    case MsgKind::link_down: return "link_down";
    case MsgKind::undeliverable: return "undeliverable";
    case MsgKind::actor_down: return "actor_down";
    case MsgKind::stop_asked: return "stop_asked";
    case MsgKind::stop: return "stop";
    case MsgKind::connect: return "connect";
    case MsgKind::connected: return "connected";
    case MsgKind::connect_failed: return "connect_failed";
    case MsgKind::submit: return "submit";
    case MsgKind::accepted: return "accepted";
    case MsgKind::client_refused: return "client_refused";
    case MsgKind::fetch: return "fetch";
    case MsgKind::client_ack: return "client_ack";
    case MsgKind::client_cancel: return "client_cancel";
    case MsgKind::client_tokens: return "client_tokens";
    case MsgKind::client_done: return "client_done";
    case MsgKind::client_beat: return "client_beat";
    case MsgKind::client_gone: return "client_gone";
    case MsgKind::status_query: return "status_query";
    case MsgKind::status_reply: return "status_reply";
    case MsgKind::model_query: return "model_query";
    case MsgKind::model_reply: return "model_reply";
    case MsgKind::client_hello: return "client_hello";
    case MsgKind::client_bad_frame: return "client_bad_frame";
    case MsgKind::update_weights: return "update_weights";
    case MsgKind::update_report: return "update_report";
    case MsgKind::admit: return "admit";
    case MsgKind::admitted: return "admitted";
    case MsgKind::admit_refused: return "admit_refused";
    case MsgKind::cancel: return "cancel";
    case MsgKind::freeze: return "freeze";
    case MsgKind::frozen: return "frozen";
    case MsgKind::done: return "done";
    case MsgKind::done_ack: return "done_ack";
    case MsgKind::failed: return "failed";
    case MsgKind::cluster_query: return "cluster_query";
    case MsgKind::cluster_reply: return "cluster_reply";
    case MsgKind::reserve: return "reserve";
    case MsgKind::reserved: return "reserved";
    case MsgKind::reserve_refused: return "reserve_refused";
    case MsgKind::release: return "release";
    case MsgKind::slot_freed: return "slot_freed";
    case MsgKind::preempted: return "preempted";
    case MsgKind::adopted: return "adopted";
    case MsgKind::adopt_failed: return "adopt_failed";
    case MsgKind::start: return "start";
    case MsgKind::run: return "run";
    case MsgKind::run_refused: return "run_refused";
    case MsgKind::prefill_done: return "prefill_done";
    case MsgKind::prefill_failed: return "prefill_failed";
    case MsgKind::cancelled: return "cancelled";
    case MsgKind::kv_post: return "kv_post";
    case MsgKind::kv_done: return "kv_done";
    case MsgKind::kv_nack: return "kv_nack";
    case MsgKind::adopt: return "adopt";
    case MsgKind::tokens: return "tokens";
    case MsgKind::tokens_ack: return "tokens_ack";
    case MsgKind::resend: return "resend";
    case MsgKind::prompt_scores: return "prompt_scores";
    case MsgKind::weights_prepare: return "weights_prepare";
    case MsgKind::weights_ready: return "weights_ready";
    case MsgKind::weights_failed: return "weights_failed";
    case MsgKind::weights_commit: return "weights_commit";
    case MsgKind::weights_committed: return "weights_committed";
    case MsgKind::weights_abort: return "weights_abort";
    case MsgKind::weights_drop: return "weights_drop";
    case MsgKind::weights_dropped: return "weights_dropped";
    case MsgKind::timer: return "timer";
    case MsgKind::step_done: return "step_done";
    case MsgKind::kv_sent: return "kv_sent";
    case MsgKind::kv_received: return "kv_received";
    case MsgKind::prepared: return "prepared";
    case MsgKind::weights_prepared: return "weights_prepared";
  }
  return nullptr;
}

bool msg_kind_known(uint16_t value) noexcept {
  return msg_kind_name(static_cast<MsgKind>(value)) != nullptr;
}

}  // namespace baton
