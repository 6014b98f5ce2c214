#include "runtime/layout/plan.h"

#include <algorithm>

#include "runtime/base/hash.h"

namespace baton {
namespace {

// Hashes numbers in a fixed order and width, so that the digest is the same on every machine.
class Digester {
 public:
  void add(uint64_t value) { state_ = mix64(state_ ^ mix64(value)); }
  void add(const Range& range) { add(uint64_t{range.begin} << 32 | range.end); }
  void add(const Placement& p) {
    for (uint64_t v :
         {uint64_t{p.shape.layers}, uint64_t{p.shape.kv_heads}, uint64_t{p.shape.head_dim},
          static_cast<uint64_t>(p.dtype), uint64_t{p.block_tokens}, static_cast<uint64_t>(p.inner),
          uint64_t{p.ranks.size()}}) {
      add(v);
    }
    for (const Box& box : p.ranks) {
      add(box.layers);
      add(box.heads);
    }
  }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0;
};

uint64_t placement_hash(const Placement& placement) {
  Digester digester;
  digester.add(placement);
  return digester.value();
}

PlanDigest digest_of(const Plan& plan) {
  Digester digester;
  digester.add(plan.source);
  digester.add(plan.target);
  for (const Segment& s : plan.segments) {
    digester.add(uint64_t{s.source_rank} << 32 | s.target_rank);
    digester.add(s.layers);
    digester.add(s.heads);
    digester.add(static_cast<uint64_t>(s.conversion));
  }
  return PlanDigest{digester.value()};
}

std::string text_of(const KvShape& shape) {
  return std::to_string(shape.layers) + " layers x " + std::to_string(shape.kv_heads) +
         " kv-heads x " + std::to_string(shape.head_dim);
}

Conversion conversion_of(const Placement& source, const Placement& target) {
  if (source.dtype != target.dtype) return Conversion::convert;
  return source.block_tokens == target.block_tokens ? Conversion::copy : Conversion::reblock;
}

// Cuts a target's layers wherever the set of source ranks that own a layer may change.
std::vector<Range> layer_bands(const Placement& source, const Range& layers) {
  std::vector<uint32_t> cuts = {layers.begin, layers.end};
  for (const Box& box : source.ranks) {
    for (uint32_t at : {box.layers.begin, box.layers.end}) {
      if (at > layers.begin && at < layers.end) cuts.push_back(at);
    }
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  std::vector<Range> bands;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) bands.push_back({cuts[i], cuts[i + 1]});
  return bands;
}

class Planner {
 public:
  Planner(const Placement& source, const Placement& target)
      : source_(source),
        target_(target),
        conversion_(conversion_of(source, target)),
        load_(source.ranks.size(), 0) {}

  std::vector<Segment> run() {
    std::vector<Segment> all;
    for (uint32_t rank = 0; rank < target_.ranks.size(); ++rank) {
      for (const Segment& segment : segments_of(rank)) all.push_back(segment);
    }
    return all;
  }

 private:
  std::vector<Segment> segments_of(uint32_t target_rank) {
    std::vector<Segment> out;
    size_t band_before = 0;  // where the segments of the band above begin
    for (const Range& band : layer_bands(source_, target_.ranks[target_rank].layers)) {
      std::vector<Segment> cut = cover(target_rank, band);
      if (extends(out, band_before, cut)) {
        for (size_t i = band_before; i < out.size(); ++i) out[i].layers.end = band.end;
      } else {
        band_before = out.size();
        out.insert(out.end(), cut.begin(), cut.end());
      }
    }
    return out;
  }

  // True if the band above is cut in the same way, so that the two are one.
  static bool extends(const std::vector<Segment>& above, size_t begin,
                      const std::vector<Segment>& below) {
    if (above.size() == begin || above.size() - begin != below.size()) return false;
    return std::equal(below.begin(), below.end(),
                      above.begin() + static_cast<std::ptrdiff_t>(begin),
                      [](const Segment& b, const Segment& a) {
                        return a.source_rank == b.source_rank && a.heads == b.heads;
                      });
  }

  // The fewest source ranks that cover the target's heads in a band of layers: at each head, one of
  // those that reach farthest.
  std::vector<Segment> cover(uint32_t target_rank, const Range& band) {
    std::vector<Segment> out;
    const Range heads = target_.ranks[target_rank].heads;
    for (uint32_t head = heads.begin; head < heads.end;) {
      const uint32_t source_rank = choose(target_rank, band, head);
      const uint32_t end = std::min(source_.ranks[source_rank].heads.end, heads.end);
      load_[source_rank] += uint64_t{band.size()} * (end - head);
      out.push_back({source_rank, target_rank, band, {head, end}, conversion_});
      head = end;
    }
    return out;
  }

  uint32_t choose(uint32_t target_rank, const Range& band, uint32_t head) const {
    const Box& wanted = target_.ranks[target_rank];
    // Equal placements map each rank to its own counterpart.
    if (target_rank < source_.ranks.size() && source_.ranks[target_rank] == wanted) {
      return target_rank;
    }
    uint32_t best = UINT32_MAX;
    uint32_t best_reach = 0;
    for (uint32_t i = 0; i < source_.ranks.size(); ++i) {
      const Box& box = source_.ranks[i];
      if (!box.layers.contains(band) || !box.heads.contains(head)) continue;
      const uint32_t reach = std::min(box.heads.end, wanted.heads.end);
      const bool better = best == UINT32_MAX || reach > best_reach ||
                          (reach == best_reach && load_[i] < load_[best]);
      if (better) {
        best = i;
        best_reach = reach;
      }
    }
    CHECK_MSG(best != UINT32_MAX, "a checked placement owns every element");
    return best;
  }

  const Placement& source_;
  const Placement& target_;
  const Conversion conversion_;
  std::vector<uint64_t> load_;  // layer-heads each source rank sends so far
};

}  // namespace

bool conversion_exact(KvDtype from, KvDtype to) noexcept {
  return from == to || to == KvDtype::f32;
}

bool Plan::whole_blocks() const {
  if (segments.size() != target.ranks.size()) return false;
  return std::all_of(segments.begin(), segments.end(), [&](const Segment& s) {
    const Box part{s.layers, s.heads};
    return s.conversion == Conversion::copy && source.ranks[s.source_rank] == part &&
           target.ranks[s.target_rank] == part;
  });
}

Result<Plan> plan_reshard(const Placement& source, const Placement& target) {
  if (Result<void> checked = check_placement(source); !checked.ok()) {
    return Error{checked.error().code, "source placement: " + checked.error().text};
  }
  if (Result<void> checked = check_placement(target); !checked.ok()) {
    return Error{checked.error().code, "target placement: " + checked.error().text};
  }
  if (source.shape != target.shape) {
    return Error{ErrorCode::unsupported, "the source's KV cache is " + text_of(source.shape) +
                                             ", the target's " + text_of(target.shape) +
                                             ": load the same model on both"};
  }
  if (source.inner != target.inner) {
    return Error{ErrorCode::unsupported,
                 "source and target order the elements of a block differently: run the same "
                 "backend on both"};
  }
  Plan plan{source,
            target,
            Planner(source, target).run(),
            conversion_exact(source.dtype, target.dtype),
            {}};
  plan.digest = digest_of(plan);
  return plan;
}

Result<void> check_plan(const Plan& plan) {
  const Result<Plan> own = plan_reshard(plan.source, plan.target);
  if (!own.ok()) return own.error();
  if (own->digest == plan.digest && own->segments == plan.segments && own->exact == plan.exact) {
    return {};
  }
  return Error{ErrorCode::conflict,
               "the reshard plan differs from the one that this rank computes for the same two "
               "placements: run the same version of Baton on every rank"};
}

std::string describe_plan(const Plan& plan) {
  const Placement& s = plan.source;
  const Placement& t = plan.target;
  std::string text = std::to_string(s.ranks.size()) +
                     (s.ranks.size() == 1 ? " rank to " : " ranks to ") +
                     std::to_string(t.ranks.size());
  if (plan.whole_blocks()) text += ", whole blocks";
  if (s.block_tokens != t.block_tokens) {
    text += ", blocks of " + std::to_string(s.block_tokens) + " to " +
            std::to_string(t.block_tokens) + " tokens";
  }
  if (s.dtype != t.dtype) {
    text += std::string(", ") + dtype_name(s.dtype) + " to " + dtype_name(t.dtype) +
            (plan.exact ? "" : " (rounds)");
  }
  return text;
}

Result<const Plan*> PlanCache::plan(const Placement& source, const Placement& target) {
  const std::pair<uint64_t, uint64_t> key{placement_hash(source), placement_hash(target)};
  if (auto found = pairs_.find(key); found != pairs_.end()) {
    const Plan& known = plans_.at(found->second);
    if (known.source == source && known.target == target) {
      ++counters_.hits;
      return &known;
    }
  }
  Result<Plan> planned = plan_reshard(source, target);
  if (!planned.ok()) return planned.error();
  if (plans_.size() >= plans_max_) {
    return Error{ErrorCode::busy, "more than " + std::to_string(plans_max_) +
                                      " different pairs of KV placements are in use"};
  }
  ++counters_.computed;
  const PlanDigest digest = planned->digest;
  auto [at, inserted] = plans_.emplace(digest, std::move(*planned));
  CHECK_MSG(inserted || (at->second.source == source && at->second.target == target),
            "two plans have one digest");
  pairs_[key] = digest;
  return &at->second;
}

const Plan* PlanCache::find(PlanDigest digest) const {
  auto found = plans_.find(digest);
  return found == plans_.end() ? nullptr : &found->second;
}

}  // namespace baton
