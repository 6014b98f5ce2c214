#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "kernels/isa.h"
#include "launch/cli/client_options.h"
#include "launch/cli/terminal.h"
#include "launch/serve/banner.h"
#include "launch/serve/cluster.h"
#include "launch/serve/rank.h"
#include "runtime/base/log.h"
#include "transport/inproc/inproc_mover.h"

namespace baton {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

LogLevel level_of(const std::string& name) {
  if (name == "debug") return LogLevel::debug;
  if (name == "warning") return LogLevel::warning;
  if (name == "error") return LogLevel::error;
  return LogLevel::info;
}

void open_log(const ServeOptions& options, const std::string& name) {
  LogOptions log;
  log.level = level_of(options.log_level);
  log.json = options.log_json;
  log.colour = cli::may_colour(stderr);
  log.name = name;
  log_open(log);
}

int exit_status(const Error& error) {
  switch (error.code) {
    case ErrorCode::bad_model:
    case ErrorCode::not_found:
    case ErrorCode::unsupported: return cli::kBadModel;
    case ErrorCode::unavailable: return cli::kUnavailable;
    case ErrorCode::internal: return cli::kInternal;
    default: return cli::kUsage;
  }
}

int report(const Error& error) {
  std::fprintf(stderr, "baton serve: %s\n", error.text.c_str());
  return exit_status(error);
}

// Blocks the ending signals in every thread from now on, and hands each one that comes to the host
// of this rank as a message.
class SignalWatch {
 public:
  SignalWatch() {
    sigemptyset(&set_);
    for (const int signal : {SIGINT, SIGTERM}) sigaddset(&set_, signal);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
    signal(SIGPIPE, SIG_IGN);
  }
  // Until the process ends; `post` is thread-safe.
  void start(uint32_t rank, std::function<void(Mail)> post) {
    std::thread([set = set_, rank, post = std::move(post)] {
      while (true) {
        int signal = 0;
        if (sigwait(&set, &signal) != 0) return;
        Mail mail;
        mail.envelope.kind = StopAsked::kind;
        mail.envelope.to = ActorId{rank, kHostSlot, kAnyIncarnation};
        mail.body = encode_body(StopAsked{signal});
        post(std::move(mail));
      }
    }).detach();
  }

 private:
  sigset_t set_;
};

// All roles in this process.
int serve_alone(const ServeOptions& options, Clock::time_point start) {
  open_log(options, "baton");
  SignalWatch signals;
  const Result<OpenedModel> model = open_model(options);
  if (!model.ok()) return report(model.error());
  const auto text = load_text(*model);
  if (!text.ok()) return report(text.error());

  const std::vector<uint32_t> cores = allowed_cores();
  const CorePlan plan = plan_cores(options.threads, 0, 1, cores);
  RankPlace place;
  place.incarnation = process_incarnation();
  place.host = host_name();
  place.cores = plan.text;
  InprocExchange exchange;
  Rank rank(place, options);
  if (Result<void> control = rank.add_control(*model, *text, nullptr); !control.ok()) {
    return report(control.error());
  }
  cli::ProgressBar bar("Packing weights");
  auto engines = start_engines(*model, options, plan, 2, 1, rank.post(),
                               [&](uint64_t done, uint64_t total) { bar.update(done, total); });
  bar.finish();
  if (!engines.ok()) return report(engines.error());
  rank.add_workers(std::move(*engines), [&](Engine& engine, std::function<void(Mail)> deliver) {
    return std::make_unique<InprocMover>(exchange, store_of(engine), std::move(deliver),
                                         options.limits);
  });
  rank.add_host([&](const ClusterReply& cluster) {
    std::printf("%s", banner_text(*model, options, place.topology, cluster, rank.client_endpoint(),
                                  seconds_since(start))
                          .c_str());
    std::fflush(stdout);
    write_ready_file(options.ready_file, rank.client_endpoint());
  });
  signals.start(0, rank.post());
  return rank.run();
}

}  // namespace

namespace cli {

int serve_main(int argc, char** argv) {
  const auto start = Clock::now();
  ServeOptions options;
  ServeFlags flags;
  if (const auto status = flags.parse(argc, argv, options)) return *status;
  if (isa_choice().error[0] != '\0') {
    std::fprintf(stderr, "baton serve: %s\n", isa_choice().error);
    return kUsage;
  }
  install_model_fault_handler();
  if (under_mpirun()) return serve_rank(options, seconds_since(start));
  return serve_alone(options, start);
}

}  // namespace cli
}  // namespace baton
