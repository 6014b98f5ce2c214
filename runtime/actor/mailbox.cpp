#include "runtime/actor/mailbox.h"

#include <utility>

#include "runtime/actor/delivery.h"
#include "runtime/base/check.h"

namespace baton {

Mailbox::Mailbox(const Limits& limits)
    : work_max_(limits.mailbox_work_max), hard_max_(limits.mailbox_hard_max) {}

Mailbox::Outcome Mailbox::push(Mail&& mail) {
  const Delivery delivery = delivery_of(mail.envelope.kind);
  const std::lock_guard lock(mutex_);
  if (closed_) return {Pushed::closed, false};
  std::deque<Mail>& lane = delivery.lane == Lane::control ? control_ : work_;
  if (delivery.refusable && lane.size() >= work_max_) return {Pushed::full, false};
  CHECK_MSG(lane.size() < hard_max_, "mail that may not be refused arrives without bound");
  lane.push_back(std::move(mail));
  return {Pushed::accepted, !std::exchange(scheduled_, true)};
}

void Mailbox::take(std::vector<Mail>& out, size_t max) {
  out.clear();
  const std::lock_guard lock(mutex_);
  for (std::deque<Mail>* lane : {&control_, &work_}) {
    while (!lane->empty() && out.size() < max) {
      out.push_back(std::move(lane->front()));
      lane->pop_front();
    }
  }
  if (out.empty()) scheduled_ = false;
}

void Mailbox::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  control_.clear();
  work_.clear();
}

size_t Mailbox::size() const {
  const std::lock_guard lock(mutex_);
  return control_.size() + work_.size();
}

}  // namespace baton
