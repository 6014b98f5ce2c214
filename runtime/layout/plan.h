#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/base/result.h"
#include "runtime/layout/placement.h"

namespace baton {

// What happens to the bytes of a segment on their way.
enum class Conversion : uint8_t {
  copy = 0,     // the same stored form: bytes move as they are
  reblock = 1,  // another block size: the same elements, regrouped
  convert = 2,  // another dtype (and perhaps block size)
};
constexpr bool enum_valid(Conversion c) {
  return c <= Conversion::convert;
}

// A part of the cache that one source rank sends to one target rank. Ranks are positions in their
// placements; layers and heads are numbered as the model numbers them, so that ranks with different
// ranges still pair the same layer with the same layer.
struct Segment {
  uint32_t source_rank = 0;
  uint32_t target_rank = 0;
  Range layers;
  Range heads;
  Conversion conversion = Conversion::copy;
  BATON_FIELDS(source_rank, target_rank, layers, heads, conversion)
  friend bool operator==(const Segment&, const Segment&) = default;
};

// How KV moves from one placement to another: every element that the target owns is brought by
// exactly one segment. Plain data; sent to both ends and named by its digest from then on.
struct Plan {
  Placement source;
  Placement target;
  std::vector<Segment> segments;  // by target rank, then layer, then head
  bool exact = true;              // false: a conversion rounds
  PlanDigest digest;
  BATON_FIELDS(source, target, segments, exact, digest)

  // Every target rank takes the whole of one source rank's part, unconverted: a block is itself the
  // packed unit, and blocks move as they are.
  bool whole_blocks() const;
};

// True if every value of `from` is a value of `to`.
bool conversion_exact(KvDtype from, KvDtype to) noexcept;

// Fails with conflict and a sentence unless the plan is what this rank computes for the same two
// placements: what is received is checked, never assumed.
Result<void> check_plan(const Plan& plan);

// Pure: the same placements give the same plan, on every rank. Among replicas the least loaded
// source is taken, so that they fan out. Fails with invalid_argument when a placement is not sound
// and with unsupported when the two are not of one model.
Result<Plan> plan_reshard(const Placement& source, const Placement& target);

// A sentence for people: from how many ranks to how many, and what changes on the way.
std::string describe_plan(const Plan& plan);

struct PlanCacheCounters {
  uint64_t computed = 0;
  uint64_t hits = 0;  // asked for and known already
};

// Plans by pair of placements and by digest. Owner thread only.
class PlanCache {
 public:
  // At most `plans_max` different pairs; one more is refused with busy.
  explicit PlanCache(size_t plans_max = 1024) : plans_max_(plans_max) {}

  // Computed at the first call for a pair. The pointer is good for the life of the cache.
  Result<const Plan*> plan(const Placement& source, const Placement& target);
  // Null for a digest that was never planned or added here.
  const Plan* find(PlanDigest digest) const;
  size_t size() const { return plans_.size(); }
  const PlanCacheCounters& counters() const { return counters_; }

 private:
  const size_t plans_max_;
  std::map<PlanDigest, Plan> plans_;
  std::map<std::pair<uint64_t, uint64_t>, PlanDigest> pairs_;  // by hash of source and target
  PlanCacheCounters counters_;
};

}  // namespace baton
