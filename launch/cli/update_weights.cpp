#include <cstdio>
#include <filesystem>
#include <string>

#include "launch/cli/client_options.h"
#include "launch/cli/terminal.h"
#include "runtime/base/json.h"

namespace baton::cli {
namespace {

struct UpdateOptions {
  std::string path;
  std::string policy = "finish";
  std::string sha256;
  int64_t version = 0;
  int64_t timeout_s = 0;
  bool dry_run = false;
  bool wait = false;
  bool json = false;
};

void enroll(Command& command, UpdateOptions& options) {
  command.positional("PATH", options.path, "A GGUF file that every host with a worker has", true);
  command.option("--policy", options.policy,
                 "For running requests: finish (on the old weights), continue (on the new ones, "
                 "recomputed) or abort");
  command.option("--version", options.version,
                 "Number of the new weights, greater than the present one; 0: the next");
  command.option("--sha256", options.sha256, "What the file must be");
  command.option("--timeout", options.timeout_s,
                 "Seconds until every worker must have read the file; 0: the server's limit");
  command.flag("--dry-run", options.dry_run, "Read and check it on every worker, change nothing");
  command.flag("--wait", options.wait, "Return when the old weights are gone, not when committed");
  command.flag("--json", options.json, "One JSON object, for programs");
}

std::string progress_text(const client::UpdateProgress& p) {
  std::string text = p.phase + ": " + std::to_string(p.workers_done) + " of " +
                     std::to_string(p.workers) + " workers";
  if (p.phase == "retiring") {
    text = "retiring: " + count_text(p.old_requests) + " requests run on the old weights";
  }
  return text;
}

// One line on a terminal, redrawn; elsewhere a line for each thing that is new.
class ProgressLine {
 public:
  void show(const client::UpdateProgress& progress) {
    const std::string text = progress_text(progress);
    if (text == last_) return;
    last_ = text;
    std::fprintf(stderr, terminal_ ? "\r\033[K%s" : "%s\n", text.c_str());
    std::fflush(stderr);
  }
  void clear() {
    if (terminal_ && !last_.empty()) std::fputs("\r\033[K", stderr);
  }

 private:
  const bool terminal_ = is_terminal(stderr);
  std::string last_;
};

void print_json(const client::UpdateProgress& p, bool dry_run) {
  Json object = Json::object();
  object.set("version", static_cast<int64_t>(p.version));
  char digest[24];
  std::snprintf(digest, sizeof digest, "%016llx", static_cast<unsigned long long>(p.digest));
  object.set("digest", std::string(digest));
  object.set("committed", !dry_run);
  object.set("workers", static_cast<int64_t>(p.workers));
  object.set("old_requests", static_cast<int64_t>(p.old_requests));
  object.set("prepare_us", p.prepare_us);
  std::printf("%s\n", write_json(object).c_str());
}

void print_outcome(const client::UpdateProgress& p, bool dry_run) {
  if (dry_run) {
    std::printf("version %llu would work: read and checked on %u workers in %s; nothing changed\n",
                static_cast<unsigned long long>(p.version), p.workers,
                duration_text(p.prepare_us).c_str());
    return;
  }
  std::printf("version %llu is served by %u workers; prepared in %s",
              static_cast<unsigned long long>(p.version), p.workers,
              duration_text(p.prepare_us).c_str());
  if (p.old_requests > 0) {
    std::printf("; %s requests finish on the old weights", count_text(p.old_requests).c_str());
  }
  std::printf("\n");
}

int exit_status(const client::Error& error, int usual) {
  // Another update runs, or a worker was too slow: the same may work later.
  if (error.retry_after_ms > 0 || error.code == "deadline_exceeded") return kRetry;
  const bool file = error.code == "bad_model" || error.code == "corrupt" ||
                    error.code == "not_found" || error.code == "conflict";
  return file ? kBadModel : usual;
}

}  // namespace

int update_weights_main(int argc, char** argv) {
  Command command("update-weights", "Replace the weights of a running server");
  ClientOptions where;
  UpdateOptions options;
  enroll(command, options);
  where.enroll(command);
  if (const auto status = command.parse(argc, argv)) return *status;
  if (options.version < 0 || options.timeout_s < 0) {
    std::fprintf(stderr, "baton update-weights: --version and --timeout must be 0 or more\n");
    return kUsage;
  }
  client::WeightsUpdate update;
  update.path = std::filesystem::absolute(options.path).lexically_normal().string();
  update.sha256 = options.sha256;
  update.version = static_cast<uint64_t>(options.version);
  update.policy = options.policy;
  update.dry_run = options.dry_run;
  update.wait_retired = options.wait;
  update.prepare_timeout_ms = options.timeout_s * 1000;
  auto connected = client::Client::connect(where.of("baton-update-weights"));
  if (!connected.value) return report_error("update-weights", connected.error);
  ProgressLine line;
  const auto outcome = connected.value->update_weights(
      update, [&](const client::UpdateProgress& progress) { line.show(progress); });
  line.clear();
  if (!outcome.value) {
    return exit_status(outcome.error, report_error("update-weights", outcome.error));
  }
  if (options.json) {
    print_json(*outcome.value, options.dry_run);
  } else {
    print_outcome(*outcome.value, options.dry_run);
  }
  return kOk;
}

}  // namespace baton::cli
