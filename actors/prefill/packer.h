#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "runtime/base/result.h"
#include "runtime/base/time.h"

namespace baton {

// How prompts are put together for one forward pass.
enum class PackPolicy : uint8_t {
  buckets = 0,       // only prompts of one padded length share a pass
  token_budget = 1,  // any lengths share a pass, in order of arrival
};

// Length classes that prompts are padded to in the policy's eyes (kernels need no padding): powers
// of two from 64 up, and the context.
std::vector<uint32_t> auto_prefill_lengths(uint32_t context_max);

// Explicit length classes must ascend and end with the context, so that every prompt has a class.
// Fails with invalid_argument.
Result<void> check_prefill_lengths(const std::vector<uint32_t>& lengths, uint32_t context_max);

struct PackOptions {
  PackPolicy policy = PackPolicy::buckets;
  std::vector<uint32_t> prefill_lengths;  // ascending; the last one is the context
  uint32_t step_tokens_max = 0;           // of one engine step
  size_t prompts_max = 16;                // per pack
  Micros age_max_us = 20 * kMillisecond;  // the oldest member waits at most this for company
};

// One waiting prompt.
struct PackItem {
  uint64_t key = 0;     // the caller's, unique among the waiting
  uint32_t tokens = 0;  // true length, > 0
  Micros arrival_us = 0;
};

// Why a pack was closed.
enum class FlushReason : uint8_t {
  full = 0,    // the next prompt did not fit, or no further one can
  aged = 1,    // its oldest member had waited long enough
  idle = 2,    // the engine had nothing else to do
  ending = 3,  // nothing more will come
  alone = 4,   // a prompt that fills a pass by itself
};
inline constexpr size_t kFlushReasons = 5;

struct Pack {
  std::vector<PackItem> items;  // in order of arrival
  uint32_t tokens = 0;          // sum of the true lengths
  FlushReason reason = FlushReason::full;
};

// Puts prompts into packs, by the rules of an offline engine's buckets: a bucket per padded length,
// filled by true lengths up to what one pass can take; a prompt whose class fills a pass runs
// alone. Never holds a prompt back from an engine that has nothing else to do. Pure bookkeeping:
// the prefill actor owns it and calls it from its thread.
class Packer {
 public:
  explicit Packer(PackOptions options);

  // A prompt joins its bucket; what that fills becomes a pack.
  void add(const PackItem& item);
  // Takes a waiting prompt out again; false if the key does not wait here.
  bool remove(uint64_t key);
  // The pack that an engine without work runs next: closed ones in order (buckets whose oldest
  // member is too old are closed first), otherwise the bucket with the oldest member. Empty only
  // if nothing waits.
  std::optional<Pack> next(Micros now);
  // Closes every bucket, oldest first: nothing more will come.
  void flush();

  size_t size() const { return size_; }            // prompts that wait
  uint32_t capacity() const { return capacity_; }  // true tokens of one pack
  uint32_t step_tokens_max() const { return options_.step_tokens_max; }

 private:
  struct Bucket {
    std::vector<PackItem> items;
    uint32_t tokens = 0;
  };

  uint32_t class_of(uint32_t tokens) const;
  void close(uint32_t length, FlushReason reason);
  // The length class of the bucket with the oldest member, or 0 when all are empty.
  uint32_t oldest_bucket() const;

  const PackOptions options_;
  const uint32_t capacity_;             // true tokens of one pack
  std::map<uint32_t, Bucket> buckets_;  // by length class; only non-empty ones
  std::deque<Pack> closed_;
  size_t size_ = 0;
};

}  // namespace baton
