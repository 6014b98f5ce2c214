#pragma once

#include <tuple>

// Names a struct's fields in wire order, for runtime/actor/wire.h. Only ever append.
#define BATON_FIELDS(...)         \
  auto fields() {                 \
    return std::tie(__VA_ARGS__); \
  }                               \
  auto fields() const {           \
    return std::tie(__VA_ARGS__); \
  }
