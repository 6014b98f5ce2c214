#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/actor/message.h"
#include "runtime/base/result.h"

// Sets of weights, by version: what an engine holds beside the set that it started with, and how it
// comes to hold another.

namespace baton {

// The version of the set that a cluster starts with.
inline constexpr uint64_t kFirstWeights = 1;
// For Engine::drop_weights: every set that is prepared, or about to be, and not committed.
inline constexpr uint64_t kUncommittedWeights = 0;

// Where a set of weights comes from, and what it has to be.
struct WeightsSource {
  std::string path;    // of a model file, the same on every host that has a worker
  std::string sha256;  // of that file, 64 hex digits; empty: not compared
  BATON_FIELDS(path, sha256)
  friend bool operator==(const WeightsSource&, const WeightsSource&) = default;
};

// A set to be prepared. A ticket names one attempt: a version may be tried again after a failure.
struct WeightsOrder {
  uint64_t version = 0;
  uint64_t ticket = 0;
  WeightsSource source;
  BATON_FIELDS(version, ticket, source)
};

// A set that an engine holds.
struct WeightsInfo {
  uint64_t version = 0;
  uint64_t digest = 0;     // of what was read: equal sets have equal ones
  bool committed = false;  // requests may run on it
  WeightsSource source;    // of an update; empty for the set that the engine started with
  BATON_FIELDS(version, digest, committed, source)
};

// Engine -> the actor that ordered: the set is there, or why not. One for each order that was not
// dropped before.
struct WeightsPrepared {
  static constexpr MsgKind kind = MsgKind::weights_prepared;
  uint64_t version = 0;
  uint64_t ticket = 0;
  bool ok = false;
  ErrorCode code = ErrorCode::ok;  // of a failure, with its sentence
  std::string text;
  uint64_t digest = 0;
  uint64_t bytes = 0;  // packed, in memory
  int64_t took_us = 0;
  bool plan_reused = false;  // which rows go where was known from an earlier set
  BATON_FIELDS(version, ticket, ok, code, text, digest, bytes, took_us, plan_reused)
};

}  // namespace baton
