#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/json.h"
#include "runtime/layout/transfer.h"

namespace baton {

// A plan for people: a line per (source rank, target rank, layers, heads), a drawing of each target
// rank with the source of each of its heads and layers, and totals for `tokens` positions. Pure.
std::string plan_report(const RoutedPlan& routed, uint32_t tokens);

// The same for programs.
Json plan_json(const RoutedPlan& routed, uint32_t tokens);

}  // namespace baton
