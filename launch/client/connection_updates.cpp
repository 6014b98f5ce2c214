// Updates of the weights: how those who asked wait for what the server reports.

#include <chrono>
#include <utility>

#include "launch/client/connection.h"

namespace baton::client {

std::optional<UpdateReport> Connection::next_report(uint64_t update, int64_t timeout_ms,
                                                    Error& error) {
  std::unique_lock lock(mutex_);
  Update& mine = updates_.at(update);
  const auto something = [&] { return !mine.reports.empty() || mine.lost; };
  if (timeout_ms < 0) {
    changed_.wait(lock, something);
  } else {
    changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms), something);
  }
  if (mine.reports.empty()) {
    error = mine.lost.value_or(
        Error{"deadline_exceeded",
              "no word of the update in time; it goes on, `baton status` shows how far it is", 0});
    return std::nullopt;
  }
  UpdateReport report = std::move(mine.reports.front());
  mine.reports.pop_front();
  return report;
}

void Connection::end_update(uint64_t update) {
  const std::lock_guard lock(mutex_);
  updates_.erase(update);
}

}  // namespace baton::client
