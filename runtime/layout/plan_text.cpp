#include "runtime/layout/plan_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

namespace baton {
namespace {

// 1234567 as 1,234,567.
std::string grouped(uint64_t value) {
  std::string digits = std::to_string(value);
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

// Both ends included, as people count: "4" or "0-14".
std::string inclusive(const Range& range) {
  if (range.size() == 1) return std::to_string(range.begin);
  return fmt::format("{}-{}", range.begin, range.end - 1);
}

const char* conversion_name(const Plan& plan, Conversion conversion) {
  switch (conversion) {
    case Conversion::copy: return "copy";
    case Conversion::reblock: return "regroup";
    case Conversion::convert: return plan.exact ? "convert" : "round";
  }
  return "";
}

// What a segment takes of the target's cache.
uint64_t bytes_per_token(const Plan& plan, const Segment& segment) {
  return uint64_t{segment.layers.size()} * 2 * segment.heads.size() * plan.target.shape.head_dim *
         dtype_bytes(plan.target.dtype);
}

uint64_t bytes_per_token(const Placement& placement) {
  uint64_t bytes = 0;
  for (const Box& box : placement.ranks) {
    bytes += uint64_t{box.layers.size()} * 2 * box.heads.size() * placement.shape.head_dim *
             dtype_bytes(placement.dtype);
  }
  return bytes;
}

std::string side_line(const char* name, const Placement& placement) {
  return fmt::format("{:<7} {} {}, blocks of {} tokens, {}, {} bytes per token\n", name,
                     placement.ranks.size(), placement.ranks.size() == 1 ? "rank" : "ranks",
                     placement.block_tokens, dtype_name(placement.dtype),
                     grouped(bytes_per_token(placement)));
}

std::string table_of(const Plan& plan) {
  std::string text = fmt::format("{:>11}    {:>11}   {:<9} {:<9} {:<10} {:>12}\n", "source rank",
                                 "target rank", "layers", "kv-heads", "how", "bytes/token");
  for (const Segment& segment : plan.segments) {
    text += fmt::format("{:>11} -> {:>11}   {:<9} {:<9} {:<10} {:>12}\n", segment.source_rank,
                        segment.target_rank, inclusive(segment.layers), inclusive(segment.heads),
                        conversion_name(plan, segment.conversion),
                        grouped(bytes_per_token(plan, segment)));
  }
  return text;
}

// Layers of a target rank, cut wherever its sources change.
std::vector<Range> bands_of(const Plan& plan, uint32_t target_rank) {
  std::set<uint32_t> cuts;
  for (const Segment& segment : plan.segments) {
    if (segment.target_rank != target_rank) continue;
    cuts.insert(segment.layers.begin);
    cuts.insert(segment.layers.end);
  }
  std::vector<Range> bands;
  for (auto at = cuts.begin(); at != cuts.end() && std::next(at) != cuts.end(); ++at) {
    bands.push_back({*at, *std::next(at)});
  }
  return bands;
}

uint32_t source_of(const Plan& plan, uint32_t target_rank, uint32_t layer, uint32_t head) {
  const auto found =
      std::find_if(plan.segments.begin(), plan.segments.end(), [&](const Segment& segment) {
        return segment.target_rank == target_rank && segment.layers.contains(layer) &&
               segment.heads.contains(head);
      });
  return found == plan.segments.end() ? UINT32_MAX : found->source_rank;
}

// A box for each target rank: kv-heads from left to right, layers from top to bottom, and in each
// cell the rank that sends it. Heads that come from one rank share a cell.
std::string drawing_of(const Plan& plan, uint32_t rank) {
  const Range heads = plan.target.ranks[rank].heads;
  std::string scale = fmt::format("{:>14} ", "kv-head");
  std::string edge = fmt::format("{:>14} +", "");
  for (uint32_t head = heads.begin; head < heads.end; ++head) {
    scale += fmt::format("{:^5}", head);
    edge += "----+";
  }
  scale.resize(scale.find_last_not_of(' ') + 1);
  std::string text = fmt::format("target rank {}\n{}\n{}\n", rank, scale, edge);
  for (const Range& band : bands_of(plan, rank)) {
    std::string row =
        fmt::format("{:>14} |", (band.size() == 1 ? "layer " : "layers ") + inclusive(band));
    for (uint32_t head = heads.begin; head < heads.end;) {
      const uint32_t source = source_of(plan, rank, band.begin, head);
      uint32_t end = head + 1;
      while (end < heads.end && source_of(plan, rank, band.begin, end) == source) ++end;
      row += fmt::format("{:^{}}|", fmt::format("s{}", source), 5 * (end - head) - 1);
      head = end;
    }
    text += row + "\n" + edge + "\n";
  }
  return text;
}

struct Totals {
  uint64_t bytes_per_token = 0;
  uint64_t bytes = 0;
  size_t pieces = 0;
  uint64_t largest = 0;
  std::vector<uint32_t> idle;  // source ranks that send nothing
};

Totals totals_of(const RoutedPlan& routed, uint32_t tokens) {
  Totals totals;
  std::set<uint32_t> senders;
  for (const Segment& segment : routed.plan.segments) {
    totals.bytes_per_token += bytes_per_token(routed.plan, segment);
    senders.insert(segment.source_rank);
  }
  for (const TransferPiece& piece : divide_transfer(routed, 0, tokens)) {
    ++totals.pieces;
    totals.bytes += piece.bytes;
    totals.largest = std::max(totals.largest, piece.bytes);
  }
  for (uint32_t rank = 0; rank < routed.plan.source.ranks.size(); ++rank) {
    if (!senders.contains(rank)) totals.idle.push_back(rank);
  }
  return totals;
}

Json range_json(const Range& range) {
  Json out = Json::array();
  out.push_back(std::int64_t{range.begin});
  out.push_back(std::int64_t{range.end});
  return out;
}

Json placement_json(const Placement& placement) {
  Json out = Json::object();
  out.set("block_tokens", std::int64_t{placement.block_tokens});
  out.set("dtype", dtype_name(placement.dtype));
  out.set("bytes_per_token", static_cast<std::int64_t>(bytes_per_token(placement)));
  Json ranks = Json::array();
  for (const Box& box : placement.ranks) {
    Json rank = Json::object();
    rank.set("layers", range_json(box.layers));
    rank.set("kv_heads", range_json(box.heads));
    ranks.push_back(std::move(rank));
  }
  out.set("ranks", std::move(ranks));
  return out;
}

}  // namespace

std::string plan_report(const RoutedPlan& routed, uint32_t tokens) {
  const Plan& plan = routed.plan;
  const Totals totals = totals_of(routed, tokens);
  std::string text =
      fmt::format("{:<7} {} layers, {} kv-heads of {}\n", "model", plan.target.shape.layers,
                  plan.target.shape.kv_heads, plan.target.shape.head_dim);
  text += side_line("source", plan.source) + side_line("target", plan.target) + "\n";
  text += table_of(plan) + "\nWho sends what (s0: source rank 0):\n\n";
  for (uint32_t rank = 0; rank < plan.target.ranks.size(); ++rank) {
    text += drawing_of(plan, rank) + "\n";
  }
  if (!totals.idle.empty()) {
    text += "source ranks that send nothing, since others have the same heads:";
    for (const uint32_t rank : totals.idle) text += fmt::format(" {}", rank);
    text += "\n";
  }
  text +=
      fmt::format("{} bytes per token; {} tokens: {} bytes in {} {}, {} bytes at most\n",
                  grouped(totals.bytes_per_token), grouped(tokens), grouped(totals.bytes),
                  totals.pieces, totals.pieces == 1 ? "piece" : "pieces", grouped(totals.largest));
  if (routed.terms.layer_groups > 1) {
    text += fmt::format("the layers go in {} groups\n", routed.terms.layer_groups);
  }
  text += plan.exact ? "exact: every value arrives as it was stored\n"
                     : fmt::format("not exact: {} to {} rounds, and results say so\n",
                                   dtype_name(plan.source.dtype), dtype_name(plan.target.dtype));
  text += fmt::format("digest {:016x}\n", plan.digest.value);
  return text;
}

Json plan_json(const RoutedPlan& routed, uint32_t tokens) {
  const Plan& plan = routed.plan;
  const Totals totals = totals_of(routed, tokens);
  Json out = Json::object();
  Json model = Json::object();
  model.set("layers", std::int64_t{plan.target.shape.layers});
  model.set("kv_heads", std::int64_t{plan.target.shape.kv_heads});
  model.set("head_dim", std::int64_t{plan.target.shape.head_dim});
  out.set("model", std::move(model));
  out.set("source", placement_json(plan.source));
  out.set("target", placement_json(plan.target));
  Json segments = Json::array();
  for (const Segment& segment : plan.segments) {
    Json entry = Json::object();
    entry.set("source_rank", std::int64_t{segment.source_rank});
    entry.set("target_rank", std::int64_t{segment.target_rank});
    entry.set("layers", range_json(segment.layers));
    entry.set("kv_heads", range_json(segment.heads));
    entry.set("how", conversion_name(plan, segment.conversion));
    entry.set("bytes_per_token", static_cast<std::int64_t>(bytes_per_token(plan, segment)));
    segments.push_back(std::move(entry));
  }
  out.set("segments", std::move(segments));
  out.set("bytes_per_token", static_cast<std::int64_t>(totals.bytes_per_token));
  out.set("tokens", std::int64_t{tokens});
  out.set("bytes", static_cast<std::int64_t>(totals.bytes));
  out.set("pieces", static_cast<std::int64_t>(totals.pieces));
  out.set("piece_bytes_max", static_cast<std::int64_t>(totals.largest));
  out.set("layer_groups", std::int64_t{routed.terms.layer_groups});
  out.set("packs", routed.packs());
  out.set("exact", plan.exact);
  out.set("digest", fmt::format("{:016x}", plan.digest.value));
  return out;
}

}  // namespace baton
