#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "runtime/model/model_file.h"
#include "runtime/model/tokenizer.h"

namespace baton::test {

// A tiny model by its name in tiny_logits.json, made on the spot by tests/oracle/make_models;
// nothing, with a message, where Python or numpy are missing.
inline std::optional<std::string> tiny_model(const std::string& name) {
  const std::string folder = std::string(BATON_BINARY_DIR) + "/oracle-models";
  std::string file = folder + "/" + name + ".gguf";
  const std::string make = "/usr/bin/python3 '" + std::string(BATON_SOURCE_DIR) +
                           "/tests/oracle/make_models' '" + folder + "' > /dev/null";
  if (std::system(make.c_str()) == 0 && std::filesystem::exists(file)) return file;
  MESSAGE("skipped: tests/oracle/make_models did not make ", file);
  return std::nullopt;
}

// The real model of the oracle, where it is; nothing, with a message, where it is not.
inline std::optional<std::string> real_model() {
  const char* named = std::getenv("BATON_MODEL");
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string folder = cache != nullptr ? cache : std::string(home ? home : "") + "/.cache";
  const std::string file =
      named != nullptr ? named : folder + "/baton/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (std::filesystem::exists(file)) return file;
  MESSAGE("skipped: the real model is not there: ", file);
  return std::nullopt;
}

}  // namespace baton::test
