#include "actors/prefill/packer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/base/check.h"

namespace baton {
namespace {

constexpr uint32_t kShortestClass = 64;

// With the token budget as policy, every prompt that leaves room for others has this one class.
constexpr uint32_t kAnyLength = 1;

bool arrived_before(const PackItem& a, const PackItem& b) {
  return a.arrival_us != b.arrival_us ? a.arrival_us < b.arrival_us : a.key < b.key;
}

}  // namespace

std::vector<uint32_t> auto_prefill_lengths(uint32_t context_max) {
  std::vector<uint32_t> lengths;
  for (uint64_t length = kShortestClass; length < context_max; length *= 2) {
    lengths.push_back(static_cast<uint32_t>(length));
  }
  lengths.push_back(context_max);
  return lengths;
}

Result<void> check_prefill_lengths(const std::vector<uint32_t>& lengths, uint32_t context_max) {
  const std::string how = "; give ascending lengths that end with the context, or leave it to auto";
  if (lengths.empty()) {
    return Error{ErrorCode::invalid_argument, "prefill lengths are empty" + how};
  }
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] == 0 || (i > 0 && lengths[i] <= lengths[i - 1])) {
      return Error{ErrorCode::invalid_argument, "prefill length " + std::to_string(lengths[i]) +
                                                    " at position " + std::to_string(i) +
                                                    " is not greater than the one before it" + how};
    }
  }
  if (lengths.back() != context_max) {
    return Error{ErrorCode::invalid_argument,
                 "the largest prefill length is " + std::to_string(lengths.back()) +
                     ", but the context has " + std::to_string(context_max) + " tokens" + how};
  }
  return {};
}

Packer::Packer(PackOptions options)
    : options_(std::move(options)),
      capacity_(options_.prefill_lengths.empty()
                    ? options_.step_tokens_max
                    : std::min(options_.step_tokens_max, options_.prefill_lengths.back())) {
  CHECK(!options_.prefill_lengths.empty());
  CHECK(capacity_ > 0);
  CHECK(options_.prompts_max > 0);
}

uint32_t Packer::class_of(uint32_t tokens) const {
  const auto& lengths = options_.prefill_lengths;
  const auto found = std::lower_bound(lengths.begin(), lengths.end(), tokens);
  CHECK_MSG(found != lengths.end(), "a prompt longer than the context");
  if (options_.policy == PackPolicy::buckets) return std::min(*found, capacity_);
  return tokens < capacity_ ? kAnyLength : capacity_;
}

void Packer::add(const PackItem& item) {
  CHECK(item.tokens > 0);
  ++size_;
  const uint32_t length = class_of(item.tokens);
  if (length >= capacity_) {
    closed_.push_back({{item}, item.tokens, FlushReason::alone});
    return;
  }
  if (buckets_[length].tokens + item.tokens > capacity_) close(length, FlushReason::full);
  Bucket& bucket = buckets_[length];
  bucket.items.push_back(item);
  bucket.tokens += item.tokens;
  if (bucket.tokens == capacity_ || bucket.items.size() >= options_.prompts_max) {
    close(length, FlushReason::full);
  }
}

void Packer::close(uint32_t length, FlushReason reason) {
  const auto found = buckets_.find(length);
  CHECK(found != buckets_.end() && !found->second.items.empty());
  closed_.push_back({std::move(found->second.items), found->second.tokens, reason});
  buckets_.erase(found);
}

bool Packer::remove(uint64_t key) {
  const auto take_from = [&](std::vector<PackItem>& items, uint32_t& tokens) {
    const auto found = std::find_if(items.begin(), items.end(),
                                    [&](const PackItem& item) { return item.key == key; });
    if (found == items.end()) return false;
    tokens -= found->tokens;
    items.erase(found);
    --size_;
    return true;
  };
  for (auto bucket = buckets_.begin(); bucket != buckets_.end(); ++bucket) {
    if (!take_from(bucket->second.items, bucket->second.tokens)) continue;
    if (bucket->second.items.empty()) buckets_.erase(bucket);
    return true;
  }
  for (auto pack = closed_.begin(); pack != closed_.end(); ++pack) {
    if (!take_from(pack->items, pack->tokens)) continue;
    if (pack->items.empty()) closed_.erase(pack);
    return true;
  }
  return false;
}

uint32_t Packer::oldest_bucket() const {
  const auto oldest =
      std::min_element(buckets_.begin(), buckets_.end(), [](const auto& a, const auto& b) {
        return arrived_before(a.second.items.front(), b.second.items.front());
      });
  return oldest == buckets_.end() ? 0 : oldest->first;
}

std::optional<Pack> Packer::next(Micros now) {
  for (uint32_t oldest = oldest_bucket(); oldest != 0; oldest = oldest_bucket()) {
    if (now - buckets_.at(oldest).items.front().arrival_us < options_.age_max_us) break;
    close(oldest, FlushReason::aged);
  }
  if (closed_.empty()) {
    const uint32_t oldest = oldest_bucket();
    if (oldest == 0) return std::nullopt;
    close(oldest, FlushReason::idle);
  }
  Pack pack = std::move(closed_.front());
  closed_.pop_front();
  size_ -= pack.items.size();
  return pack;
}

void Packer::flush() {
  for (uint32_t oldest = oldest_bucket(); oldest != 0; oldest = oldest_bucket()) {
    close(oldest, FlushReason::ending);
  }
}

}  // namespace baton
