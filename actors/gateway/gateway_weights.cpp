// Updates of the weights: the gateway passes the client's ask on and the scheduler's reports back.

#include <fmt/format.h>

#include <utility>

#include "actors/gateway/gateway.h"

namespace baton {
namespace {

constexpr size_t kUpdatesMax = 64;  // asks under way, of all clients

UpdateReport failed_report(const std::string& token, Refusal refusal) {
  UpdateReport report;
  report.token = token;
  report.last = true;
  report.phase = UpdatePhase::failed;
  report.refusal = std::move(refusal);
  return report;
}

}  // namespace

void Gateway::on(Context& context, const Envelope& from, UpdateWeights& ask) {
  if (from.from.rank != kClientRank) return;
  if (updates_.size() >= kUpdatesMax) {
    return context.send(
        from.from,
        failed_report(ask.token, busy(fmt::format("{} clients wait for updates of the weights",
                                                  updates_.size()))),
        {.correlation = from.correlation});
  }
  const uint64_t id = next_question_++;
  updates_[id] = {from.from, from.correlation, ask.token};
  context.send(options_.scheduler, ask, {.correlation = id});
}

void Gateway::on(Context& context, const Envelope& from, UpdateReport& report) {
  const auto update = updates_.find(from.correlation);
  if (fenced_client(from) || update == updates_.end()) return;
  context.send(update->second.client, report, {.correlation = update->second.correlation});
  if (report.last) updates_.erase(update);
}

// Whether the scheduler's next life goes on with the update is for the client to ask: again, under
// the same token.
void Gateway::end_updates(Context& context) {
  for (const auto& [id, update] : std::exchange(updates_, {})) {
    context.send(
        update.client,
        failed_report(update.token, {ErrorCode::unavailable,
                                     "the scheduler had to start over; `baton status` shows which "
                                     "weights are served now",
                                     options_.limits.retry_after_us / kMillisecond}),
        {.correlation = update.correlation});
  }
}

void Gateway::lose_update(Context& context, uint64_t id) {
  const auto update = updates_.find(id);
  if (update == updates_.end()) return;
  context.send(update->second.client,
               failed_report(update->second.token, busy("the scheduler's mailbox is full")),
               {.correlation = update->second.correlation});
  updates_.erase(update);
}

}  // namespace baton
