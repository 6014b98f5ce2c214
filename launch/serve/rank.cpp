#include "launch/serve/rank.h"

#include <chrono>
#include <mutex>
#include <utility>

#include "actors/decode/decode.h"
#include "actors/gateway/gateway.h"
#include "actors/prefill/prefill.h"
#include "actors/scheduler/scheduler.h"
#include "launch/version.h"
#include "runtime/base/log.h"

namespace baton {
namespace {

NodeOptions node_options(const RankPlace& place, const ServeOptions& options) {
  NodeOptions node;
  node.rank = place.rank;
  node.random_seed = options.seed;
  node.limits = options.limits;
  return node;
}

}  // namespace

struct Rank::Gate {
  std::mutex mutex;
  Node* node = nullptr;

  void post(Mail mail) {
    const std::lock_guard lock(mutex);
    if (node) node->post(std::move(mail));
  }
};

Rank::Rank(RankPlace place, const ServeOptions& options)
    : place_(std::move(place)),
      options_(options),
      gate_(std::make_shared<Gate>()),
      node_(std::make_unique<Node>(node_options(place_, options))) {
  gate_->node = node_.get();
}

Rank::~Rank() {
  {
    const std::lock_guard lock(gate_->mutex);
    gate_->node = nullptr;
  }
  listener_.reset();
  node_.reset();
}

std::function<void(Mail)> Rank::post() const {
  return [gate = gate_](Mail mail) { gate->post(std::move(mail)); };
}

Result<void> Rank::add_control(const OpenedModel& model, std::shared_ptr<const ModelText> text,
                               ControlLink* link) {
  ListenerOptions listen;
  listen.endpoint = options_.client_endpoint;
  listen.insecure = options_.insecure;
  listen.limits = options_.limits;
  auto listener = ClientListener::open(*node_, listen);
  if (!listener.ok()) return listener.error();
  listener_ = std::move(*listener);
  node_->set_client_sink([this](Mail mail) { listener_->deliver(mail); });
  if (link) node_->set_control_link(link);

  SchedulerOptions scheduler;
  scheduler.limits = options_.limits;
  scheduler.boot_epoch = place_.incarnation;
  scheduler.link = link;
  node_->add_actor(kSchedulerSlot, place_.incarnation,
                   [scheduler] { return std::make_unique<Scheduler>(scheduler); });

  GatewayOptions gateway;
  gateway.limits = options_.limits;
  gateway.text = std::move(text);
  gateway.context_max = model.context_max;
  gateway.vocabulary = static_cast<TokenId>(model.config.vocab);
  gateway.model =
      options_.served_model_name.empty() ? model.config.name : options_.served_model_name;
  gateway.version = kBatonVersion;
  gateway.workers = &node_->workers();
  node_->add_actor(kGatewaySlot, place_.incarnation,
                   [gateway] { return std::make_unique<Gateway>(gateway); });
  return {};
}

void Rank::add_workers(Engines engines, const MoverFactory& make_mover) {
  engines_ = std::move(engines);
  const std::vector<Role> roles = place_.topology.roles(place_.rank);
  CHECK(roles.size() == engines_.by_role.size());
  for (size_t i = 0; i < roles.size(); ++i) {
    Engine* engine = engines_.by_role[i].get();
    movers_.push_back(make_mover(*engine, post()));
    KvMover* mover = movers_.back().get();
    const InstanceId instance{place_.rank};
    if (roles[i] == Role::prefill) {
      PrefillOptions prefill;
      prefill.limits = options_.limits;
      prefill.instance = instance;
      prefill.engine = engine;
      prefill.mover = mover;
      prefill.prefill_lengths = options_.prefill_lengths;
      prefill.host = place_.host;
      prefill.cores = place_.cores;
      node_->add_actor(kPrefillSlot, place_.incarnation,
                       [prefill] { return std::make_unique<Prefill>(prefill); });
    } else {
      DecodeOptions decode;
      decode.limits = options_.limits;
      decode.instance = instance;
      decode.engine = engine;
      decode.mover = mover;
      decode.min_decode_steps = options_.min_decode_steps;
      decode.catch_up_tokens = options_.catch_up_tokens;
      decode.host = place_.host;
      decode.cores = place_.cores;
      node_->add_actor(kDecodeSlot, place_.incarnation,
                       [decode] { return std::make_unique<Decode>(decode); });
    }
  }
}

void Rank::add_host(std::function<void(const ClusterReply&)> ready) {
  HostOptions host;
  host.topology = place_.topology;
  host.rank = place_.rank;
  host.limits = options_.limits;
  host.ready = std::move(ready);
  host.leave = [this](int status) {
    status_ = status;
    node_->stop();
  };
  node_->add_actor(kHostSlot, place_.incarnation, [host] { return std::make_unique<Host>(host); });
  node_->set_escalation([this](const ActorId& actor, const std::string& reason) {
    log_error("actor " + std::to_string(actor.slot) + " failed too often: " + reason);
    status_ = cli::kInternal;
    node_->stop();
  });
}

std::string Rank::client_endpoint() const {
  return listener_ ? listener_->endpoint() : "";
}

int Rank::run() {
  node_->run();
  return status_;
}

uint32_t process_incarnation() {
  using namespace std::chrono;
  constexpr int64_t kFirstDay = 1'700'000'000;  // seconds of 1970 at a day in 2023
  const auto now = duration_cast<seconds>(system_clock::now().time_since_epoch()).count();
  return static_cast<uint32_t>(now > kFirstDay ? now - kFirstDay : 1);
}

}  // namespace baton
