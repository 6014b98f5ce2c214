// Any bytes as JSON: refused with an offset, or a value that writing and reading gives back.

#include <cstddef>
#include <cstdint>

#include "runtime/base/check.h"
#include "runtime/base/json.h"
#include "runtime/base/utf8.h"

namespace baton {
namespace {

int depth_of(const Json& json) {
  int depth = 0;
  if (json.is_array()) {
    for (const Json& element : json.as_array()) depth = std::max(depth, depth_of(element));
  } else if (json.is_object()) {
    for (const Json::Member& member : json.as_object()) {
      depth = std::max(depth, depth_of(member.value));
    }
  } else {
    return 0;
  }
  return depth + 1;
}

void read(std::string_view text) {
  const Result<Json> json = parse_json(text);
  if (!json) {
    CHECK(json.error().code == ErrorCode::invalid_argument);
    CHECK(json.error().text.starts_with("invalid JSON "));
    CHECK(is_utf8(json.error().text));
    CHECK(json.error().text.size() < 1000);
    return;
  }
  CHECK(is_utf8(text));
  CHECK(depth_of(*json) <= JsonLimits().depth_max);
  const std::string written = write_json(*json);
  const Result<Json> again = parse_json(written, {.bytes_max = written.size()});
  CHECK(again.ok());
  CHECK(*again == *json);
  CHECK(write_json(*again) == written);
}

}  // namespace
}  // namespace baton

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  baton::read({reinterpret_cast<const char*>(data), size});
  return 0;
}
