#include "launch/serve/cluster.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <memory>

#include "launch/cli/command.h"
#include "launch/cli/terminal.h"
#include "launch/serve/banner.h"
#include "launch/serve/follower.h"
#include "launch/serve/host.h"
#include "launch/serve/instance_group.h"
#include "launch/serve/rank.h"
#include "launch/serve/report.h"
#include "launch/serve/signals.h"
#include "launch/serve/wire_up.h"
#include "launch/version.h"
#include "runtime/actor/wire.h"
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
// For all ranks of an instance to map what they share, at start.
constexpr Micros kGatherWithin = 60 * kSecond;

// One rank from its place in the world to its end.
class ClusterRank {
 public:
  ClusterRank(const ServeOptions& options, MpiWorld& world, const StartClock& clock,
              SignalWatch& signals)
      : options_(options), world_(world), clock_(clock), signals_(signals) {}
  ~ClusterRank() {
    if (group_) group_->on_broken({});
  }

  // Everything that can go wrong before serving; the same answer on every rank.
  Result<void> prepare() {
    const Result<Topology> topology = divide_ranks(world_.size(), options_);
    if (!topology.ok()) return topology.error();
    place_.topology = *topology;
    place_.rank = world_.rank();
    place_.incarnation = process_incarnation();
    place_.host = world_.host();
    open_log(options_,
             "rank " + std::to_string(place_.rank) + " " + topology->role_text(place_.rank));
    meet_hosts();
    if (Result<void> hosts = check_hosts(*topology, hosts_); !hosts.ok()) return hosts;
    plan_engine();
    RankCard card;
    const Result<void> own = set_up(card);
    if (!own.ok()) {
      card.error_code = static_cast<uint16_t>(own.error().code);
      card.error_text = own.error().text;
    }
    if (Result<void> joined = join(card); !joined.ok()) return joined;
    return join_group();
  }

  int serve() {
    if (place_.rank != 0) {
      if (Result<void> engine = start_engine(); !engine.ok()) return report(engine.error());
    }
    rank_->add_host([this](const ClusterReply& cluster) {
      announce_ready(*model_, options_, place_.topology, cluster, rank_->client_endpoint(),
                     clock_.seconds());
    });
    signals_.start(place_.rank, rank_->post());
    const int status = rank_->run();
    return status == 0 && broken_ ? cli::kInternal : status;
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
      hosts_.push_back(other.substr(0, other.find('\n')));
      if (hosts_.back() != place_.host) several_hosts_ = true;
    }
    const std::string& from_control = told.front();
    const std::string both = from_control.substr(from_control.find('\n') + 1);
    if (several_hosts_ && both.size() == 80) curve_ = {both.substr(0, 40), both.substr(40)};
  }

  // How this rank's engine will use its host, and of what shape it is.
  void plan_engine() {
    if (place_.rank == 0) return;
    instance_ = place_.topology.instance_of(place_.rank);
    const HostShare share = share_of_host(hosts_, place_.rank);
    std::vector<uint32_t> threads;
    for (const uint32_t rank : share.ranks) {
      threads.push_back(place_.topology.instance_of(rank)->threads);
    }
    engines_on_host_ = share.ranks.size();
    cores_ = plan_cores(threads, share.index, allowed_cores());
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
    if (Result<void> group = open_group(card); !group.ok()) return group;
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

  // The first rank of an instance of several makes what they share; its card says where.
  Result<void> open_group(RankCard& card) {
    if (instance_ == nullptr) return {};
    const PartOf of = part_of(*instance_, place_.rank);
    if (const auto part = part_of_model(model_->config, of); !part.ok()) {
      return Error{part.error().code, std::string("the ") + role_name(instance_->role) +
                                          " instance of " + instance_->ranks_text() + ": " +
                                          part.error().text};
    }
    engine_ = engine_options(*model_, options_, *instance_, engines_on_host_);
    if (instance_->ranks() == 1) return {};
    const auto options = group_options(*model_, *instance_, place_.rank, engine_, cores_.pin);
    if (!options.ok()) return options.error();
    group_options_ = *options;
    if (place_.rank != instance_->first_rank) return {};
    auto made = ShmGroup::create(group_options_);
    if (!made.ok()) return made.error();
    group_ = std::move(*made);
    card.group = group_->name();
    return {};
  }

  // The others map it. Fails on every rank alike.
  Result<void> join_group() {
    const bool several = instance_ != nullptr && instance_->ranks() > 1;
    Result<void> own;
    if (several && group_ == nullptr) {
      auto joined = ShmGroup::join(cards_[instance_->first_rank].group, group_options_);
      if (joined.ok()) group_ = std::move(*joined);
      if (!joined.ok()) own = joined.error();
    }
    RankCard card = cards_[place_.rank];
    if (!own.ok()) {
      card.error_code = static_cast<uint16_t>(own.error().code);
      card.error_text = own.error().text;
    }
    std::vector<RankCard> cards;
    for (const std::string& bytes : world_.all_gather(pack_card(card))) {
      cards.push_back(unpack_card(bytes).value());
    }
    if (Result<void> checked = check_cards(cards); !checked.ok()) return checked;
    if (group_ == nullptr) return {};
    if (Result<void> gathered = group_->gather(kGatherWithin); !gathered.ok()) return gathered;
    engine_.group = group_;
    group_->on_broken([this](const Error& error) { instance_is_over(error.text); });
    return {};
  }

  // The instance cannot go on without one of its ranks: this one leaves too, so that the scheduler
  // excludes the instance. thread-safe
  void instance_is_over(const std::string& why) {
    if (broken_.exchange(true)) return;
    log_error("this rank leaves, for its instance (" + instance_->ranks_text() +
              ") is over: " + why);
    leave();
  }

  void leave() {
    Mail mail;
    mail.envelope.kind = Stop::kind;
    mail.envelope.to = ActorId{place_.rank, kHostSlot, kAnyIncarnation};
    mail.body = encode_body(Stop{});
    rank_->post()(std::move(mail));
  }

  Result<void> start_engine() {
    std::string cores = cores_.text;
    if (instance_->ranks() > 1) cores += ", each of " + std::to_string(instance_->ranks());
    rank_->set_cores(cores);
    // One bar for all: the ranks pack their weights at the same time.
    const bool shows = place_.rank == 1;
    cli::ProgressBar bar("Packing weights");
    auto engines = start_engines(*model_, cores_, part_of(*instance_, place_.rank), {engine_},
                                 rank_->post(), [&](uint64_t done, uint64_t total) {
                                   if (shows) bar.update(done, total);
                                 });
    if (shows) bar.finish();
    if (!engines.ok()) return engines.error();
    if (place_.rank != instance_->first_rank) {
      follower_ = std::make_unique<Follower>(std::move(*engines), group_,
                                             [this](const Result<void>& followed) {
                                               if (!followed.ok())
                                                 return instance_is_over(followed.error().text);
                                               leave();  // the first rank said so
                                             });
      return {};
    }
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
  std::vector<std::string> hosts_;          // by rank
  const InstanceSpec* instance_ = nullptr;  // of this rank; in place_
  CorePlan cores_;
  size_t engines_on_host_ = 1;
  CpuEngineOptions engine_;
  ShmGroupOptions group_options_;
  std::shared_ptr<ShmGroup> group_;  // of an instance of several ranks
  std::atomic<bool> broken_{false};
  std::unique_ptr<OpenedModel> model_;
  std::unique_ptr<Rank> rank_;
  std::unique_ptr<ZmqLink> link_;  // on the node's loop, so it goes first
  std::vector<RankCard> cards_;
  std::unique_ptr<Follower> follower_;  // first to go: its group is used by no one else
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
