#include "runtime/actor/delivery.h"

namespace baton {
namespace {

constexpr Delivery kControl{Lane::control, false, false};
constexpr Delivery kControlAsked{Lane::control, false, true};
constexpr Delivery kFact{Lane::work, false, false};
constexpr Delivery kAsked{Lane::work, false, true};
constexpr Delivery kNewWork{Lane::work, true, true};
// A client's listener sees the refusal as post()'s result and answers itself.
constexpr Delivery kFromClient{Lane::work, true, false};

}  // namespace

Delivery delivery_of(MsgKind kind) noexcept {
  switch (kind) {
    case MsgKind::welcome:
    case MsgKind::refused:
    case MsgKind::beat:
    case MsgKind::beat_ack:
    case MsgKind::peer_down:
    case MsgKind::drain:
    case MsgKind::stop_asked:
    case MsgKind::stop:
    case MsgKind::link_up:
    case MsgKind::link_down:
    case MsgKind::undeliverable:
    case MsgKind::actor_down:
    case MsgKind::timer:
    case MsgKind::step_done:
    case MsgKind::kv_sent:
    case MsgKind::kv_received:
    case MsgKind::weights_prepared: return kControl;
    case MsgKind::cancel: return kControlAsked;
    case MsgKind::admit:
    case MsgKind::reserve:
    case MsgKind::run:
    case MsgKind::cluster_query: return kNewWork;
    case MsgKind::submit:
    case MsgKind::fetch:
    case MsgKind::status_query:
    case MsgKind::model_query:
    case MsgKind::client_hello:
    case MsgKind::client_bad_frame: return kFromClient;
    // From a client and then from its gateway.
    case MsgKind::update_weights: return kNewWork;
    case MsgKind::register_worker:
    case MsgKind::connect:
    case MsgKind::freeze:
    case MsgKind::done:
    case MsgKind::release:
    case MsgKind::kv_post:
    case MsgKind::adopt:
    case MsgKind::start:
    case MsgKind::resend: return kAsked;
    case MsgKind::connected:
    case MsgKind::connect_failed:
    case MsgKind::drained:
    case MsgKind::accepted:
    case MsgKind::client_refused:
    case MsgKind::client_ack:
    case MsgKind::client_cancel:
    case MsgKind::client_tokens:
    case MsgKind::client_done:
    case MsgKind::client_beat:
    case MsgKind::client_gone:
    case MsgKind::status_reply:
    case MsgKind::model_reply:
    case MsgKind::admitted:
    case MsgKind::admit_refused:
    case MsgKind::frozen:
    case MsgKind::done_ack:
    case MsgKind::failed:
    case MsgKind::cluster_reply:
    case MsgKind::reserved:
    case MsgKind::reserve_refused:
    case MsgKind::slot_freed:
    case MsgKind::preempted:
    case MsgKind::adopted:
    case MsgKind::adopt_failed:
    case MsgKind::run_refused:
    case MsgKind::prefill_done:
    case MsgKind::prefill_failed:
    case MsgKind::cancelled:
    case MsgKind::kv_done:
    case MsgKind::kv_nack:
    case MsgKind::tokens:
    case MsgKind::tokens_ack:
    case MsgKind::prompt_scores:
    case MsgKind::update_report:
    case MsgKind::weights_prepare:
    case MsgKind::weights_ready:
    case MsgKind::weights_failed:
    case MsgKind::weights_commit:
    case MsgKind::weights_committed:
    case MsgKind::weights_abort:
    case MsgKind::weights_drop:
    case MsgKind::weights_dropped:
    case MsgKind::prepared: return kFact;
  }
  return kFact;
}

}  // namespace baton
