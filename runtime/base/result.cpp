#include "runtime/base/result.h"

namespace baton {

const char* error_name(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::ok: return "ok";
    case ErrorCode::invalid_argument: return "invalid_argument";
    case ErrorCode::not_found: return "not_found";
    case ErrorCode::bad_frame: return "bad_frame";
    case ErrorCode::bad_model: return "bad_model";
    case ErrorCode::unsupported: return "unsupported";
    case ErrorCode::context_too_long: return "context_too_long";
    case ErrorCode::busy: return "busy";
    case ErrorCode::unavailable: return "unavailable";
    case ErrorCode::deadline_exceeded: return "deadline_exceeded";
    case ErrorCode::cancelled: return "cancelled";
    case ErrorCode::worker_lost: return "worker_lost";
    case ErrorCode::corrupt: return "corrupt";
    case ErrorCode::stale: return "stale";
    case ErrorCode::conflict: return "conflict";
    case ErrorCode::internal: return "internal";
  }
  return "unknown";
}

}  // namespace baton
