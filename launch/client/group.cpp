// Many requests as one job: what is sent next, and what has ended.

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "launch/client/connection.h"

namespace baton::client {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t kPauseMaxMs = 1000;

std::string id_of(const Request& request, size_t index) {
  return request.id.empty() ? std::to_string(index) : request.id;
}

// Empty unless two requests have the same id.
std::optional<Error> find_repeated(const std::vector<Request>& requests) {
  std::map<std::string, size_t> seen;
  for (size_t i = 0; i < requests.size(); ++i) {
    const std::string id = id_of(requests[i], i);
    const auto [first, fresh] = seen.emplace(id, i);
    if (fresh) continue;
    return Error{"conflict",
                 "requests " + std::to_string(first->second) + " and " + std::to_string(i) +
                     " both have the id '" + id.substr(0, 60) + "'; ids must be unique",
                 0};
  }
  return std::nullopt;
}

}  // namespace

struct Group::State {
  Client client;
  std::shared_ptr<Connection> connection;  // shared with the client and its streams
  std::vector<Request> requests;
  GroupOptions options;
  std::deque<size_t> fresh;                       // not sent yet
  std::multimap<Clock::time_point, size_t> busy;  // refused, and when to try again
  std::map<size_t, Stream> running;
  std::map<size_t, Finished> early;  // that wait for those before them
  size_t delivered = 0;
  uint64_t ended = 0;  // jobs of the connection, as last looked at

  std::optional<size_t> due() {
    if (running.size() >= std::max<size_t>(options.outstanding, 1)) return std::nullopt;
    if (!busy.empty() && busy.begin()->first <= Clock::now()) {
      const size_t index = busy.begin()->second;
      busy.erase(busy.begin());
      return index;
    }
    if (fresh.empty()) return std::nullopt;
    const size_t index = fresh.front();
    fresh.pop_front();
    return index;
  }

  void submit_due() {
    while (const auto index = due()) {
      Request request = requests[*index];
      request.stream = false;
      running.emplace(*index, client.submit(request));
    }
  }

  void collect() {
    for (auto it = running.begin(); it != running.end();) {
      Stream& stream = it->second;
      if (!stream.finished()) {
        ++it;
        continue;
      }
      const size_t index = it->first;
      if (stream.failed() && stream.error().code == "busy") {
        const int64_t delay = std::max<int64_t>(stream.error().retry_after_ms, 1);
        busy.emplace(Clock::now() + std::chrono::milliseconds(delay), index);
      } else {
        Finished& end = early[index];
        end.id = id_of(requests[index], index);
        end.index = index;
        end.failed = stream.failed();
        if (end.failed) {
          end.error = stream.error();
        } else {
          end.result = stream.result();
        }
      }
      it = running.erase(it);
    }
  }

  std::optional<Finished> take() {
    const auto next = options.ordered ? early.find(delivered) : early.begin();
    if (next == early.end()) return std::nullopt;
    Finished finished = std::move(next->second);
    early.erase(next);
    ++delivered;
    return finished;
  }

  int64_t pause_ms() const {
    if (busy.empty()) return kPauseMaxMs;
    using std::chrono::milliseconds;
    const auto wait = std::chrono::ceil<milliseconds>(busy.begin()->first - Clock::now());
    return std::clamp<int64_t>(wait.count(), 1, kPauseMaxMs);
  }
};

Group::Group(std::unique_ptr<State> state) : state_(std::move(state)) {}
Group::Group(Group&& other) noexcept = default;
Group& Group::operator=(Group&& other) noexcept = default;

Group::~Group() {
  if (!state_) return;
  for (auto& [index, stream] : state_->running) stream.cancel();
}

size_t Group::size() const {
  return state_->requests.size();
}

std::optional<Finished> Group::next() {
  State& s = *state_;
  while (s.delivered < s.requests.size()) {
    s.submit_due();
    s.collect();
    if (std::optional<Finished> finished = s.take()) return finished;
    if (s.running.empty() && s.busy.empty()) continue;  // room for what is fresh
    s.ended = s.connection->wait_ended(s.ended, s.pause_ms());
  }
  return std::nullopt;
}

Outcome<Group> Client::submit_all(std::vector<Request> requests, const GroupOptions& options) {
  if (auto repeated = find_repeated(requests)) return {std::nullopt, std::move(*repeated)};
  auto state = std::make_unique<Group::State>(Group::State{.client = *this,
                                                           .connection = connection_,
                                                           .requests = std::move(requests),
                                                           .options = options,
                                                           .fresh = {},
                                                           .busy = {},
                                                           .running = {},
                                                           .early = {}});
  for (size_t i = 0; i < state->requests.size(); ++i) state->fresh.push_back(i);
  return {Group(std::move(state)), {}};
}

}  // namespace baton::client
