// The engine's sets of weights: preparing, committing, dropping, on all ranks of the instance.

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "runtime/actor/wire.h"
#include "runtime/base/check.h"
#include "runtime/engine/cpu_engine.h"

namespace baton {
namespace {

constexpr std::chrono::milliseconds kAskAgain{20};
constexpr size_t kTextBytesMax = 1024;  // of a reply within the instance

WeightsPrepared outcome_of(const WeightsOrder& order, const Result<WeightsLoader::Set>& set,
                           int64_t took_us) {
  WeightsPrepared prepared;
  prepared.version = order.version;
  prepared.ticket = order.ticket;
  prepared.took_us = took_us;
  prepared.ok = set.ok();
  if (set.ok()) {
    prepared.digest = (*set)->digest();
    prepared.bytes = (*set)->bytes();
    prepared.plan_reused = (*set)->plan_reused();
  } else {
    prepared.code = set.error().code;
    prepared.text = set.error().text;
  }
  return prepared;
}

// What another rank says when it is asked how far it is.
struct GroupReport {
  bool known = false;  // it has come to an end with this ticket
  WeightsPrepared prepared;
  BATON_FIELDS(known, prepared)
};

struct GroupVersion {
  uint64_t version = 0;
  BATON_FIELDS(version)
};

}  // namespace

std::shared_ptr<const LlamaWeights> CpuEngine::set_of(const Batch& batch) const {
  const std::lock_guard lock(sets_mutex_);
  return sets_.of_batch(batch.weights_version);
}

void CpuEngine::tell(ActorId reply_to, const WeightsPrepared& prepared) const {
  Mail mail;
  mail.envelope.kind = WeightsPrepared::kind;
  mail.envelope.from = reply_to;
  mail.envelope.to = reply_to;
  mail.body = encode_body(prepared);
  post_(std::move(mail));
}

void CpuEngine::order_group(GroupOrder order, std::string body) {
  if (!channel_) return;
  compute_->post([this, order, body = std::move(body)](Team&) {
    // A broken group shows at the next step, with its reason.
    if (!step_group_.broken()) (void)channel_->send(order, body).ok();
  });
}

void CpuEngine::prepare_weights(const WeightsOrder& order, ActorId reply_to) {
  Result<void> begun;
  {
    const std::lock_guard lock(sets_mutex_);
    begun = sets_.begin(order, reply_to);
  }
  if (!begun.ok()) return tell(reply_to, outcome_of(order, begun.error(), 0));
  order_group(GroupOrder::prepare_weights, encode_fields(order));
  start_loading(order, reply_to);
}

void CpuEngine::start_loading(const WeightsOrder& order, ActorId reply_to) {
  // Without the lock: a set that is there already may be reported at once.
  WeightsLoader::Interest interest = loader_->load(
      order, [this, order, reply_to](const Result<WeightsLoader::Set>& set, int64_t took_us) {
        finish_preparing(order, reply_to, set, took_us);
      });
  const std::lock_guard lock(sets_mutex_);
  interests_[order.version] = std::move(interest);
}

// On the loader's thread.
void CpuEngine::finish_preparing(const WeightsOrder& order, ActorId reply_to,
                                 const Result<WeightsLoader::Set>& set, int64_t took_us) {
  WeightsPrepared prepared = outcome_of(order, set, took_us);
  if (channel_ && leads()) await_group(order, reply_to, prepared);
  {
    const std::lock_guard lock(sets_mutex_);
    const bool wanted = prepared.ok ? sets_.finish(order, reply_to, prepared.digest, *set)
                                    : sets_.fail(order, reply_to);
    if (!wanted) return;
    if (!leads()) {
      reports_[order.ticket] = prepared;
      return;
    }
  }
  if (!prepared.ok)
    order_group(GroupOrder::drop_weights, encode_fields(GroupVersion{order.version}));
  tell(reply_to, prepared);
}

void CpuEngine::await_group(const WeightsOrder& order, ActorId reply_to,
                            WeightsPrepared& prepared) {
  std::vector<bool> done(of_.ranks(), false);
  done[0] = true;
  while (!leaving_ && !std::all_of(done.begin(), done.end(), [](bool is) { return is; })) {
    Result<std::vector<std::string>> replies = std::vector<std::string>{};
    compute_->run([&](Team&) {
      const Result<void> sent =
          step_group_.broken()
              ? Result<void>(Error{ErrorCode::worker_lost, "a rank of the instance is gone"})
              : channel_->send(GroupOrder::report_weights, encode_fields(order));
      if (sent.ok()) {
        replies = channel_->replies();
      } else {
        replies = sent.error();
      }
    });
    if (!replies.ok()) {
      prepared.ok = false;
      prepared.code = replies.error().code;
      prepared.text = replies.error().text;
      return;
    }
    for (uint32_t rank = 1; rank < of_.ranks(); ++rank) {
      const Result<GroupReport> report = decode_fields<GroupReport>((*replies)[rank - 1]);
      if (!report.ok() || !report->known || done[rank]) continue;
      done[rank] = true;
      const WeightsPrepared& theirs = report->prepared;
      prepared.bytes += theirs.bytes;
      const bool torn = prepared.ok && theirs.ok && theirs.digest != prepared.digest;
      if (!prepared.ok || (theirs.ok && !torn)) continue;
      prepared.ok = false;
      prepared.code = torn ? ErrorCode::conflict : theirs.code;
      prepared.text = torn ? "two ranks of the instance read other bytes" : theirs.text;
    }
    {
      const std::lock_guard lock(sets_mutex_);
      if (!sets_.is_pending(order, reply_to)) return;  // dropped meanwhile
    }
    std::this_thread::sleep_for(kAskAgain);
  }
}

void CpuEngine::commit_weights(uint64_t version) {
  {
    const std::lock_guard lock(sets_mutex_);
    sets_.commit(version);
  }
  order_group(GroupOrder::commit_weights, encode_fields(GroupVersion{version}));
}

void CpuEngine::drop_weights(uint64_t version) {
  {
    const std::lock_guard lock(sets_mutex_);
    sets_.drop(version);
    std::erase_if(interests_, [&](const auto& entry) { return !sets_.contains(entry.first); });
  }
  order_group(GroupOrder::drop_weights, encode_fields(GroupVersion{version}));
}

std::vector<WeightsInfo> CpuEngine::weights() const {
  const std::lock_guard lock(sets_mutex_);
  return sets_.list();
}

// What the other ranks do, on their compute threads; nothing here waits.
Result<bool> CpuEngine::obey_weights(const GroupCommand& command) {
  if (command.order == GroupOrder::prepare_weights || command.order == GroupOrder::report_weights) {
    const Result<WeightsOrder> order = decode_fields<WeightsOrder>(command.body);
    if (!order) return order.error();
    if (command.order == GroupOrder::prepare_weights) {
      Result<void> begun;
      {
        const std::lock_guard lock(sets_mutex_);
        reports_.clear();
        begun = sets_.begin(*order, {});
        if (!begun.ok()) reports_[order->ticket] = outcome_of(*order, begun.error(), 0);
      }
      if (begun.ok()) start_loading(*order, {});
      return true;
    }
    GroupReport report;
    {
      const std::lock_guard lock(sets_mutex_);
      const auto known = reports_.find(order->ticket);
      if (known != reports_.end()) report = {true, known->second};
    }
    report.prepared.text.resize(std::min(report.prepared.text.size(), kTextBytesMax));
    if (Result<void> said = channel_->reply(encode_fields(report)); !said) return said.error();
    return true;
  }
  const Result<GroupVersion> named = decode_fields<GroupVersion>(command.body);
  if (!named) return named.error();
  const std::lock_guard lock(sets_mutex_);
  if (command.order == GroupOrder::commit_weights) {
    sets_.commit(named->version);
  } else {
    sets_.drop(named->version);
    std::erase_if(interests_, [&](const auto& entry) { return !sets_.contains(entry.first); });
  }
  return true;
}

}  // namespace baton
