#include "actors/scheduler/admission.h"

#include <algorithm>
#include <string>

#include "runtime/base/check.h"

namespace baton {
namespace {

std::string number(uint64_t value) {
  return std::to_string(value);
}

Refusal busy(std::string text, Micros retry_after_us) {
  const int64_t ms = std::max<int64_t>(1, retry_after_us / kMillisecond);
  return {ErrorCode::busy, text + "; try again in " + std::to_string(ms) + " ms", ms};
}

std::optional<Refusal> refuse_malformed(const Admit& ask, const Limits& limits) {
  if (ask.ids.empty()) {
    return Refusal{ErrorCode::invalid_argument, "the prompt has no tokens; expected at least 1", 0};
  }
  if (ask.n == 0 || ask.n > limits.choices_max) {
    return Refusal{ErrorCode::invalid_argument,
                   "n is " + number(ask.n) + "; expected 1 to " + number(limits.choices_max), 0};
  }
  return std::nullopt;
}

std::optional<Refusal> refuse_too_big(const Admit& ask, const Reach& reach) {
  const Need need = need_of(ask, {.choices = ask.n});
  const auto too_long = [&](const char* role, uint64_t most) {
    return Refusal{ErrorCode::context_too_long,
                   "a prompt of " + number(ask.ids.size()) + " tokens with max_tokens " +
                       number(ask.stops.max_tokens) + " needs " + number(need.positions_max) +
                       " positions, but the largest " + role + " instance holds " + number(most) +
                       "; shorten the prompt or lower max_tokens",
                   0};
  };
  if (reach.prefill && need.positions_max > reach.prefill_positions) {
    return too_long("prefill", reach.prefill_positions);
  }
  if (reach.decode && need.positions_max > reach.decode_positions) {
    return too_long("decode", reach.decode_positions);
  }
  if (reach.decode && need.slots > reach.decode_slots) {
    return Refusal{ErrorCode::invalid_argument,
                   "n is " + number(need.slots) + ", but the largest decode instance has " +
                       number(reach.decode_slots) + " slots; lower n or raise --max-num-seqs",
                   0};
  }
  return std::nullopt;
}

std::optional<Refusal> refuse_unavailable(const AdmitLoad& load, const Reach& reach) {
  const int64_t retry_ms = std::max<int64_t>(1, load.retry_after_us / kMillisecond);
  if (load.draining) {
    return Refusal{ErrorCode::unavailable, "the cluster is shutting down and takes no new requests",
                   retry_ms};
  }
  if (load.serving) return std::nullopt;
  const char* missing = reach.prefill  ? "no decode instance is"
                        : reach.decode ? "no prefill instance is"
                                       : "neither a prefill nor a decode instance is";
  return Refusal{ErrorCode::unavailable,
                 std::string("not ready: ") + missing +
                     " alive; `baton status` shows the ranks; try again in " +
                     std::to_string(retry_ms) + " ms",
                 retry_ms};
}

}  // namespace

Need need_of(const Admit& ask, const Remainder& left) {
  const uint64_t positions_max = ask.ids.size() + uint64_t{ask.stops.max_tokens};
  const uint64_t positions = ask.ids.size() + left.carried + 1;
  return {std::max<uint64_t>(1, std::min(positions, positions_max)), positions_max, left.choices,
          left.own};
}

std::optional<Refusal> refuse_admit(const Admit& ask, const AdmitLoad& load, const Reach& reach,
                                    const Limits& limits) {
  if (auto refusal = refuse_malformed(ask, limits)) return refusal;
  if (load.remaining_us <= 0) {
    return Refusal{ErrorCode::deadline_exceeded,
                   "the deadline had passed before the request could be queued", 0};
  }
  if (auto refusal = refuse_too_big(ask, reach)) return refusal;
  if (auto refusal = refuse_unavailable(load, reach)) return refusal;
  if (load.queued >= limits.queued_requests_max) {
    return busy(number(load.queued) + " requests are queued, the limit is " +
                    number(limits.queued_requests_max),
                load.retry_after_us);
  }
  if (load.live >= limits.live_requests_max) {
    return busy(number(load.live) + " requests are running, the limit is " +
                    number(limits.live_requests_max),
                load.retry_after_us);
  }
  return std::nullopt;
}

Micros AdmissionQueue::due_of(Micros deadline, Micros now) const {
  return std::min(deadline, now + policy_.patience_us);
}

void AdmissionQueue::push(RequestId request, const QueueRank& rank, const Need& need) {
  Entry entry;
  entry.rank = rank;
  entry.need = need;
  CHECK(entries_.emplace(request, entry).second);
  line_.emplace(rank, request);
}

bool AdmissionQueue::remove(RequestId request) {
  const auto found = entries_.find(request);
  if (found == entries_.end()) return false;
  line_.erase({found->second.rank, request});
  if (found->second.parked) parked_.erase({found->second.parked_at, request});
  entries_.erase(found);
  return true;
}

void AdmissionQueue::keep_instance(Entry& entry, const Sites& sites) {
  if (entry.kept && sites.has_decode(*entry.kept)) return;
  entry.kept = sites.claim(entry.need);
}

std::optional<AdmissionQueue::Next> AdmissionQueue::take(const Sites& sites, Micros now) {
  if (sites.full()) return std::nullopt;
  std::vector<Entry*> overtaken;
  std::optional<WorkerKey> kept;
  size_t looked_at = 0;
  for (auto at = line_.begin(); at != line_.end() && looked_at < policy_.scan_max; ++looked_at) {
    const RequestId request = at->second;
    Entry& entry = entries_.at(request);
    const Place place = sites.place(entry.need, kept);
    switch (place.outcome) {
      case PlaceOutcome::placed:
        for (Entry* earlier : overtaken) ++earlier->skipped;
        remove(request);
        return Next{request, place.source, place.target};
      case PlaceOutcome::prefill_full: return std::nullopt;
      case PlaceOutcome::decode_full:
        entry.parked_at = kNever;
        overtaken.push_back(&entry);
        if (!kept && entry.skipped >= policy_.skips_max) {
          keep_instance(entry, sites);
          kept = entry.kept;
        }
        ++at;
        break;
      case PlaceOutcome::impossible:
        entry.parked = true;
        if (entry.parked_at == kNever) entry.parked_at = now;
        parked_.emplace(entry.parked_at, request);
        at = line_.erase(at);
        break;
    }
  }
  return std::nullopt;
}

void AdmissionQueue::unpark() {
  for (const auto& [since, request] : parked_) {
    Entry& entry = entries_.at(request);
    entry.parked = false;
    line_.emplace(entry.rank, request);
  }
  parked_.clear();
}

std::optional<RequestId> AdmissionQueue::parked_since_before(Micros instant) const {
  if (parked_.empty() || parked_.begin()->first >= instant) return std::nullopt;
  return parked_.begin()->second;
}

}  // namespace baton
