#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launch/listen/client_listener.h"
#include "launch/serve/engines.h"
#include "launch/serve/host.h"
#include "launch/serve/serve_options.h"
#include "launch/serve/topology.h"
#include "runtime/actor/control_link.h"
#include "runtime/actor/kv_mover.h"
#include "runtime/node/node.h"

namespace baton {

// Where a rank stands in its cluster.
struct RankPlace {
  Topology topology;
  uint32_t rank = 0;
  uint32_t incarnation = 1;  // of this process; grows from process to process
  std::string host;
  std::string cores;  // for people
};

// Makes the mover of one engine; `deliver` is thread-safe.
using MoverFactory =
    std::function<std::unique_ptr<KvMover>(Engine& engine, std::function<void(Mail)> deliver)>;

// The actors of one rank on their node, wired to engines, movers and links. Setting up and ending
// belong to the thread that runs the node.
class Rank {
 public:
  Rank(RankPlace place, const ServeOptions& options);
  ~Rank();

  Node& node() { return *node_; }
  // Posts mail to the node as long as there is one. thread-safe, also after the rank has ended.
  std::function<void(Mail)> post() const;
  // For people, before add_workers().
  void set_cores(const std::string& text) { place_.cores = text; }

  // Scheduler, gateway and the clients' listener. Fails when the endpoint is not to be had.
  Result<void> add_control(const OpenedModel& model, std::shared_ptr<const ModelText> text,
                           ControlLink* link);
  // One worker actor per engine of this rank, with its mover.
  void add_workers(Engines engines, const MoverFactory& make_mover);
  // `ready` is called on the control rank when all workers have joined.
  void add_host(std::function<void(const ClusterReply&)> ready);

  // Where clients connect; empty without control.
  std::string client_endpoint() const;
  // Serves until the host says so; returns the exit status.
  int run();

 private:
  RankPlace place_;
  const ServeOptions& options_;
  // Actors use engines and movers, and those post to the node from other threads: the gate is shut
  // first, then the node ends with its actors, then the rest.
  struct Gate;
  std::shared_ptr<Gate> gate_;  // shared with threads that may post while the rank ends
  Engines engines_;
  std::vector<std::unique_ptr<KvMover>> movers_;
  std::unique_ptr<Node> node_;
  std::unique_ptr<ClientListener> listener_;
  int status_ = 0;
};

// The incarnation of a process that starts now: seconds since a fixed day, so that a later process
// with the same rank has a greater one.
uint32_t process_incarnation();

}  // namespace baton
