#pragma once

#include <fstream>
#include <iterator>
#include <string>

#include "runtime/base/json.h"

namespace baton::test {

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  CHECK_MSG(file.good(), path.c_str());
  return std::string((std::istreambuf_iterator<char>(file)), {});
}

// A JSON file of the source tree, such as "tests/oracle/data/chat_cases.json".
inline Json read_golden(const std::string& path) {
  return parse_json(read_file(std::string(BATON_SOURCE_DIR) + "/" + path)).value();
}

}  // namespace baton::test
