// Which prefill and decode instances exchange KV, and how.

#include <utility>

#include "actors/scheduler/scheduler.h"
#include "runtime/base/log.h"

namespace baton {

// The newcomer is connected with every worker of the other role; it takes no work before all of
// them have agreed.
void Scheduler::connect(Context& context, const Worker& newcomer) {
  const bool sends = newcomer.info.role == Role::prefill;
  for (const auto& [key, other] : members_.live()) {
    if (other.info.role == newcomer.info.role) continue;
    const Worker& source = sends ? newcomer : other;
    const Worker& target = sends ? other : newcomer;
    const Plan& plan = members_.plan(source, target);
    log_info("KV of rank " + std::to_string(source.id.rank) + " for rank " +
             std::to_string(target.id.rank) + ": " + describe_plan(plan));
    pairs_.add(source.id, target.id, sends, plan, awake(context));
  }
  for (const Pairs::Question& question : pairs_.questions(newcomer.id)) {
    context.send(question.to, question.message);
  }
}

void Scheduler::on(Context& context, const Envelope& from, Connected& message) {
  if (fence_stale(context, from)) return;
  const Pair* pair = pairs_.agree(from.from, message);
  if (!pair || !pairs_.ready(pair->newcomer)) return;
  refresh(context, *members_.find(pair->newcomer));
  queue_.unpark();
  pump(context);
}

// A plan that one end computes otherwise is not used: the newcomer stays without work, and its
// status says so.
void Scheduler::on(Context& context, const Envelope& from, ConnectFailed& message) {
  if (fence_stale(context, from)) return;
  const Pair* pair = pairs_.fail(from.from, message.pair);
  if (!pair) return;
  log_warning("rank " + std::to_string(from.from.rank) + " cannot exchange KV (rank " +
              std::to_string(pair->source.rank) + " to rank " + std::to_string(pair->target.rank) +
              "): " + message.refusal.text);
}

}  // namespace baton
