#include "runtime/engine/numerics.h"

#include "runtime/base/check.h"
#include "runtime/base/hash.h"

namespace baton {

const char* activation_mode_name(ActivationMode mode) noexcept {
  switch (mode) {
    case ActivationMode::int8: return "int8";
    case ActivationMode::f32: return "f32";
  }
  check_failed(__FILE__, __LINE__, "mode", "no such activation mode");
}

uint64_t cpu_numerics_id(ActivationMode mode, KvDtype kv_dtype) noexcept {
  constexpr uint64_t kCpuBackend = 1;
  uint64_t id = mix64(kNumericsVersion);
  for (const uint64_t part :
       {kCpuBackend, static_cast<uint64_t>(mode), static_cast<uint64_t>(kv_dtype)}) {
    id = mix64(id ^ part);
  }
  return id;
}

}  // namespace baton
