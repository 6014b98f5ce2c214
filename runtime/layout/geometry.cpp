#include "runtime/layout/geometry.h"

namespace baton {

const char* dtype_name(KvDtype dtype) noexcept {
  switch (dtype) {
    case KvDtype::f32: return "f32";
    case KvDtype::bf16: return "bf16";
    case KvDtype::f16: return "f16";
  }
  return "unknown";
}

}  // namespace baton
