#include "launch/serve/cluster.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <memory>

#include "launch/cli/terminal.h"
#include "launch/serve/banner.h"
#include "launch/serve/rank.h"
#include "launch/serve/report.h"
#include "launch/serve/signals.h"
#include "launch/serve/wire_up.h"
#include "launch/version.h"
#include "runtime/base/log.h"
#include "runtime/node/io.h"
#include "transport/control/zmq_link.h"
#include "transport/control/zmq_socket.h"
#include "transport/mpi/mpi_mover.h"
#include "transport/mpi/mpi_world.h"

namespace baton {
namespace {

// After that a peer must be dead or stuck, and finalising would hang with it.
constexpr Micros kFinalizeWithin = 2 * kSecond;

// One rank from its place in the world to its end.
class ClusterRank {
 public:
  ClusterRank(const ServeOptions& options, MpiWorld& world, const StartClock& clock,
              SignalWatch& signals)
      : options_(options), world_(world), clock_(clock), signals_(signals) {}

  // Everything that can go wrong before serving; the same answer on every rank.
  Result<void> prepare() {
    const Result<Topology> topology =
        divide_ranks(world_.size(), options_.prefill_ranks, options_.decode_ranks);
    if (!topology.ok()) return topology.error();
    place_.topology = *topology;
    place_.rank = world_.rank();
    place_.incarnation = process_incarnation();
    place_.host = world_.host();
    open_log(options_,
             "rank " + std::to_string(place_.rank) + " " + topology->role_text(place_.rank));
    meet_hosts();
    RankCard card;
    const Result<void> own = set_up(card);
    if (!own.ok()) {
      card.error_code = static_cast<uint16_t>(own.error().code);
      card.error_text = own.error().text;
    }
    return join(card);
  }

  int serve() {
    if (place_.rank != 0) {
      if (Result<void> engines = start_workers(); !engines.ok()) return report(engines.error());
    }
    rank_->add_host([this](const ClusterReply& cluster) {
      announce_ready(*model_, options_, place_.topology, cluster, rank_->client_endpoint(),
                     clock_.seconds());
    });
    signals_.start(place_.rank, rank_->post());
    return rank_->run();
  }

 private:
  // Are all ranks on one host? Then links stay on loopback; otherwise they are encrypted, with keys
  // that rank 0 makes and tells the others over MPI.
  void meet_hosts() {
    const ZmqCurve keys = place_.rank == 0 ? new_zmq_curve() : ZmqCurve{};
    const std::vector<std::string> told =
        world_.all_gather(place_.host + "\n" + keys.public_key + keys.secret_key);
    several_hosts_ = false;
    for (const std::string& other : told) {
      if (other.substr(0, other.find('\n')) != place_.host) several_hosts_ = true;
    }
    const std::string& from_control = told.front();
    const std::string both = from_control.substr(from_control.find('\n') + 1);
    if (several_hosts_ && both.size() == 80) curve_ = {both.substr(0, 40), both.substr(40)};
  }

  // Opens what this rank needs: model, link, and on the control rank the clients' endpoint.
  Result<void> set_up(RankCard& card) {
    card.rank = place_.rank;
    card.incarnation = place_.incarnation;
    card.host = place_.host;
    card.version = kBatonVersion;
    auto model = open_model(options_);
    if (!model.ok()) return model.error();
    model_ = std::make_unique<OpenedModel>(std::move(*model));
    card.fingerprint = model_->file.fingerprint();
    rank_ = std::make_unique<Rank>(place_, options_);
    if (Result<void> link = open_link(); !link.ok()) return link;
    card.endpoint = link_->endpoint();
    if (place_.rank != 0) return {};
    const auto text = load_text(*model_);
    if (!text.ok()) return text.error();
    return rank_->add_control(*model_, *text, link_.get());
  }

  Result<void> open_link() {
    ZmqLinkOptions link;
    link.rank = place_.rank;
    link.incarnation = place_.incarnation;
    link.limits = options_.limits;
    if (several_hosts_) {
      link.bind_host = outside_address();
      link.curve = curve_;
      if (link.bind_host.empty()) {
        return Error{
            ErrorCode::unavailable,
            "the ranks are on several hosts, but this one has no address besides loopback"};
      }
    }
    Node& node = rank_->node();
    ZmqLinkSinks sinks;
    sinks.mail = [&node](Mail mail) { node.post(std::move(mail)); };
    sinks.up = [&node](const LinkUp& up) { node.tell_all(up); };
    sinks.down = [&node](const LinkDown& down) { node.tell_all(down); };
    sinks.now = [&node] { return node.now(); };
    auto opened = ZmqLink::open(NodeIo::of(node), link, std::move(sinks));
    if (!opened.ok()) return opened.error();
    link_ = std::move(*opened);
    node.set_control_link(link_.get());
    return {};
  }

  Result<void> join(const RankCard& own) {
    for (const std::string& bytes : world_.all_gather(pack_card(own))) {
      Result<RankCard> card = unpack_card(bytes);
      if (!card.ok()) return card.error();
      cards_.push_back(std::move(*card));
    }
    if (Result<void> checked = check_cards(cards_); !checked.ok()) return checked;
    for (const RankCard& card : cards_) {
      if (card.rank == place_.rank) continue;
      if (Result<void> peer = link_->set_peer(card.rank, card.endpoint); !peer.ok()) return peer;
      link_->greet(card.rank);
    }
    return {};
  }

  Result<void> start_workers() {
    const HostShare share = share_of_host(cards_, place_.rank);
    const CorePlan plan =
        plan_cores(options_.threads, share.index, share.engine_ranks, allowed_cores());
    rank_->set_cores(plan.text);
    // One bar for all: the ranks pack the same weights at the same time.
    const bool shows = place_.rank == 1;
    cli::ProgressBar bar("Packing weights");
    auto engines = start_engines(*model_, options_, plan, 1, share.engine_ranks, rank_->post(),
                                 [&](uint64_t done, uint64_t total) {
                                   if (shows) bar.update(done, total);
                                 });
    if (shows) bar.finish();
    if (!engines.ok()) return engines.error();
    rank_->add_workers(
        std::move(*engines), [this](Engine& engine, std::function<void(Mail)> deliver) {
          return std::make_unique<MpiMover>(world_, store_of(engine), std::move(deliver));
        });
    return {};
  }

  const ServeOptions& options_;
  MpiWorld& world_;
  const StartClock& clock_;
  SignalWatch& signals_;
  RankPlace place_;
  bool several_hosts_ = false;
  ZmqCurve curve_;
  std::unique_ptr<OpenedModel> model_;
  std::unique_ptr<Rank> rank_;
  std::unique_ptr<ZmqLink> link_;  // on the node's loop, so it goes first
  std::vector<RankCard> cards_;
};

}  // namespace

bool under_mpirun() {
  return MpiWorld::launched();
}

void serve_rank(const ServeOptions& options, const StartClock& clock) {
  // The launcher's daemon is this process's parent: when it is gone, so is the job.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  SignalWatch signals;  // before MPI starts threads
  Result<std::unique_ptr<MpiWorld>> started = MpiWorld::start({});
  if (!started.ok()) {
    std::fflush(stderr);
    _exit(report(started.error()));
  }
  MpiWorld& world = **started;
  auto rank = std::make_unique<ClusterRank>(options, world, clock, signals);
  const Result<void> prepared = rank->prepare();
  int status = 0;
  if (!prepared.ok()) {
    // The same sentence on every rank: one is enough.
    status = world.rank() == 0 ? report(prepared.error()) : exit_status(prepared.error());
  } else {
    status = rank->serve();
  }
  rank.reset();  // its mover lets go of MPI
  world.leave(status, kFinalizeWithin);
}

}  // namespace baton
