#pragma once

#include <errno.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/engine/engine_driver.h"

// What the benchmarks of whole engines share: their words, and the steps that they measure.

namespace baton::bench {

[[noreturn]] inline void fail(const std::string& text) {
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, text.c_str());
  std::exit(1);
}

template <class T>
T must(Result<T> result) {
  if (!result) fail(result.error().text);
  return std::move(result).value();
}

struct EngineWords {
  std::string model;
  ActivationMode mode = ActivationMode::int8;
  bool pin = false;
};

// `more` takes the words that a benchmark has beside these (with `value` for the one behind), or
// returns false. `options` is what the usage says of them.
inline EngineWords parse_words(
    int argc, char** argv, const std::string& options,
    const std::function<bool(const std::string& word, const std::function<std::string()>& value)>&
        more) {
  EngineWords out;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&]() -> std::string {
      if (++i == argc) fail(word + " needs a value");
      return argv[i];
    };
    if (word == "--activations") {
      out.mode = value() == "f32" ? ActivationMode::f32 : ActivationMode::int8;
    } else if (word == "--pin") {
      out.pin = true;
    } else if (!more(word, value)) {
      out.model = word;
    }
  }
  if (out.model.empty()) {
    fail(std::string("usage: ") + program_invocation_short_name +
         " MODEL [--activations int8|f32] [--pin] " + options);
  }
  return out;
}

// A step: one row per prompt or sequence.
struct Load {
  std::string name;
  uint32_t position = 0;             // of each row's first token
  std::vector<uint32_t> row_tokens;  // of each row

  uint32_t tokens() const {
    uint32_t sum = 0;
    for (uint32_t n : row_tokens) sum += n;
    return sum;
  }
};

inline Load prefill_load(uint32_t tokens) {
  return {"prefill " + std::to_string(tokens), 0, {tokens}};
}

inline Load decode_load(uint32_t rows, uint32_t context) {
  return {"decode B=" + std::to_string(rows) + " context " + std::to_string(context), context - 1,
          std::vector<uint32_t>(rows, 1)};
}

inline std::vector<BatchRow> rows_of(EngineDriver& driver, const Load& load) {
  driver.reset_blocks();
  std::vector<BatchRow> rows(load.row_tokens.size());
  for (uint32_t i = 0; i < rows.size(); ++i) {
    rows[i].key = i;
    for (uint32_t t = 0; t < load.row_tokens[i]; ++t) {
      rows[i].tokens.push_back(static_cast<TokenId>((i * 131 + t * 17) % 512));
    }
    rows[i].position = load.position;
    rows[i].blocks = driver.take_blocks(load.position + load.row_tokens[i]);
    rows[i].sampling.top_logprobs = 0;
  }
  return rows;
}

// KV blocks that the largest of these steps needs.
inline uint32_t blocks_needed(const std::vector<Load>& loads, uint32_t block_tokens) {
  uint32_t most = 0;
  for (const Load& load : loads) {
    uint32_t blocks = 0;
    for (uint32_t n : load.row_tokens) {
      blocks += (load.position + n + block_tokens - 1) / block_tokens;
    }
    most = std::max(most, blocks);
  }
  return most;
}

}  // namespace baton::bench
