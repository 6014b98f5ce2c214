#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "launch/sim/checkers/rest_checker.h"
#include "launch/sim/expected_stream.h"
#include "launch/sim/sim_client.h"
#include "launch/sim/sim_cluster.h"

#include <doctest/doctest.h>

namespace baton {

// A whole cluster without chance faults, and clients of one job each, whose answers are known.
struct QuietCluster {
  SwarmPlan plan;
  std::vector<std::unique_ptr<SimClient>> clients;
  std::unique_ptr<SimCluster> cluster;

  QuietCluster(uint64_t seed, const SwarmPlan& wanted) : plan(wanted) {
    SimClusterHooks hooks;
    hooks.to_client = [this](const Mail& mail) {
      clients.at(client_of_connection(mail.envelope.to.slot) - 1)->receive(mail);
    };
    cluster = std::make_unique<SimCluster>(seed, plan, std::move(hooks));
    REQUIRE(world().run_until([this] { return cluster->all_joined(); }, 5 * kSecond));
  }
  World& world() { return cluster->world(); }

  // A client with one job more, which must have number 1.
  SimClient& start(Submit job) {
    const auto number = static_cast<uint32_t>(clients.size() + 1);
    SimClientHooks quiet{[](const JobRecord&, const ClientTokens&) {}, [](const std::string&) {}};
    clients.push_back(std::make_unique<SimClient>(world(), number, ClientPlan{}, quiet));
    clients.back()->start({std::move(job)}, true);
    return *clients.back();
  }
  bool all_finished(Micros within) {
    return world().run_until(
        [this] {
          return std::all_of(clients.begin(), clients.end(),
                             [](const auto& client) { return client->finished(); });
        },
        within);
  }
  // What the fake model says to the job's prompt, as choice 0.
  ExpectedStream expected(const JobRecord& job) const {
    return expect_stream({cluster->model(), &cluster->tokenizer(), plan.context_max}, job.submit,
                         job.submit.ids, job.submit.sampling.seed, 0);
  }
  bool at_rest(Micros within = 60 * kSecond) {
    if (world().run_until([this] { return unrest(*cluster).empty(); }, within)) return true;
    for (const std::string& text : unrest(*cluster)) MESSAGE(text);
    return false;
  }
};

}  // namespace baton
