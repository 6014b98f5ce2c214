#include <cstdio>
#include <memory>

#include "kernels/isa.h"
#include "launch/cli/client_options.h"
#include "launch/cli/terminal.h"
#include "launch/serve/banner.h"
#include "launch/serve/cluster.h"
#include "launch/serve/rank.h"
#include "launch/serve/report.h"
#include "launch/serve/signals.h"
#include "transport/inproc/inproc_mover.h"

namespace baton {
namespace {

// All roles in this process.
int serve_alone(const ServeOptions& options, const StartClock& clock) {
  open_log(options, "baton");
  SignalWatch signals;
  const Result<OpenedModel> model = open_model(options);
  if (!model.ok()) return report(model.error());
  const auto text = load_text(*model);
  if (!text.ok()) return report(text.error());

  const Result<Topology> topology = divide_ranks(1, options);
  if (!topology.ok()) return report(topology.error());
  const CorePlan plan = plan_cores({options.defaults.prefill.threads}, 0, allowed_cores());
  RankPlace place;
  place.topology = *topology;
  place.incarnation = process_incarnation();
  place.host = host_name();
  place.cores = plan.text;
  InprocExchange exchange;
  Rank rank(place, options);
  if (Result<void> control = rank.add_control(*model, *text, nullptr); !control.ok()) {
    return report(control.error());
  }
  cli::ProgressBar bar("Packing weights");
  std::vector<CpuEngineOptions> wanted;
  for (const InstanceSpec& instance : topology->instances) {
    wanted.push_back(engine_options(*model, options, instance, topology->instances.size()));
  }
  auto engines = start_engines(*model, plan, PartOf{}, wanted, rank.post(),
                               [&](uint64_t done, uint64_t total) { bar.update(done, total); });
  bar.finish();
  if (!engines.ok()) return report(engines.error());
  rank.add_workers(std::move(*engines), [&](Engine& engine, std::function<void(Mail)> deliver) {
    return std::make_unique<InprocMover>(exchange, store_of(engine), std::move(deliver));
  });
  rank.add_host([&](const ClusterReply& cluster) {
    announce_ready(*model, options, place.topology, cluster, rank.client_endpoint(),
                   clock.seconds());
  });
  signals.start(0, rank.post());
  return rank.run();
}

}  // namespace

namespace cli {

int serve_main(int argc, char** argv) {
  const StartClock clock;
  ServeOptions options;
  ServeFlags flags;
  if (const auto status = flags.parse(argc, argv, options)) return *status;
  if (isa_choice().error[0] != '\0') {
    std::fprintf(stderr, "baton serve: %s\n", isa_choice().error);
    return kUsage;
  }
  install_model_fault_handler();
  if (under_mpirun()) serve_rank(options, clock);
  return serve_alone(options, clock);
}

}  // namespace cli
}  // namespace baton
