#include "launch/sim/checkers/terminal_checker.h"

#include <string>

namespace baton {
namespace {

bool explained(const JobRecord& job, const TerminalContext& context) {
  switch (job.refusal.code) {
    case ErrorCode::cancelled: return job.cancelled || job.disconnected;
    case ErrorCode::deadline_exceeded: return job.submit.deadline_ms > 0;
    case ErrorCode::not_found: return job.disconnected;  // its result was not kept for so long
    case ErrorCode::busy: return !job.must_finish;
    case ErrorCode::unavailable: return !job.must_finish && (!context.calm || context.aborts);
    case ErrorCode::worker_lost: return !job.must_finish && !context.calm;
    case ErrorCode::ok:
    case ErrorCode::invalid_argument:
    case ErrorCode::bad_frame:
    case ErrorCode::bad_model:
    case ErrorCode::unsupported:
    case ErrorCode::context_too_long:
    case ErrorCode::corrupt:
    case ErrorCode::stale:
    case ErrorCode::conflict:
    case ErrorCode::internal: return false;
  }
  return false;
}

}  // namespace

void check_terminal(const JobRecord& job, const TerminalContext& context, Findings& findings) {
  const std::string name = "job " + std::to_string(job.submit.job) + ", request " +
                           std::to_string(job.request.value) + ": ";
  if (job.ends == 0 && !context.client_left) findings.add("terminal", name + "never ended");
  if (job.ends > 1 + job.fetches) {
    findings.add("terminal", name + "ended " + std::to_string(job.ends) + " times, with " +
                                 std::to_string(job.fetches) + " fetches");
  }
  if (job.changed_end) findings.add("terminal", name + "ended in two ways");
  if (job.end == JobEnd::refused && !explained(job, context)) {
    findings.add("terminal", name + "was refused for no reason (" + error_name(job.refusal.code) +
                                 "): " + job.refusal.text);
  }
  if (job.end == JobEnd::refused && job.refusal.text.empty()) {
    findings.add("terminal", name + "was refused without a sentence");
  }
  if (job.end == JobEnd::session_lost && !job.disconnected) {
    findings.add("terminal", name + "lost its session without having been away");
  }
}

}  // namespace baton
