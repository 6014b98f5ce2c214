#include "runtime/node/node.h"

#include <utility>

#include <algorithm>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <random>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/log.h"
#include "runtime/node/io.h"
#include "runtime/node/worker_pool.h"

namespace baton {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;

constexpr size_t kDrainMax = 32;  // messages of one actor per turn of the loop
constexpr int64_t kSlowHandlerUs = 1000;

uint64_t seed_or_entropy(uint64_t seed) {
  if (seed != 0) return seed;
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

}  // namespace

struct Node::Impl {
  explicit Impl(const NodeOptions& o)
      : options(o),
        random(seed_or_entropy(o.random_seed)),
        supervisor(
            o.rank,
            {[this] { return now(); }, [this] { return random(); },
             [this](Mail mail) { post(std::move(mail)); }, [this](Micros at) { wake_at(at); },
             [this](const ActorId& actor, const std::string& reason) {
               if (escalate) escalate(actor, reason);
             }},
            o.limits) {}

  Micros now() const {
    return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - began).count();
  }
  bool on_loop() { return io.get_executor().running_in_this_thread(); }

  Pushed post(Mail mail);
  void post_away(Mail mail);
  void drain(uint32_t slot);
  void wake_at(Micros at);
  void on_timer();
  void handle(const Mail& mail);

  const NodeOptions options;
  const Clock::time_point began = Clock::now();
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
  asio::steady_timer timer{io};
  std::mt19937_64 random;
  ControlLink* link = nullptr;
  std::function<void(Mail)> client_sink;
  std::function<void(const ActorId&, const std::string&)> escalate;
  std::vector<Mail> batch;  // of the drain under way
  uint64_t slow_handlers = 0;
  int64_t slowest_handler_us = 0;
  uint64_t unroutable = 0;
  std::atomic<uint64_t> refused_full{0};
  Supervisor supervisor;
  std::unique_ptr<WorkerPool> pool;  // last: its threads end first
};

Pushed Node::Impl::post(Mail mail) {
  const uint32_t slot = mail.envelope.to.slot;
  if (mail.envelope.to.rank != options.rank) {
    if (on_loop()) {
      post_away(std::move(mail));
    } else {
      asio::post(io, [this, mail = std::move(mail)]() mutable { post_away(std::move(mail)); });
    }
    return Pushed::accepted;
  }
  const Mailbox::Outcome outcome = supervisor.push(std::move(mail));
  if (outcome.wake) asio::post(io, [this, slot] { drain(slot); });
  if (outcome.pushed == Pushed::full) ++refused_full;
  if (outcome.pushed != Pushed::accepted && mail.envelope.from.rank != kClientRank) {
    // The mail was not accepted, so it is still whole.
    supervisor.bounce(mail.envelope, outcome.pushed == Pushed::full);
  }
  return outcome.pushed;
}

void Node::Impl::post_away(Mail mail) {
  if (mail.envelope.to.rank == kClientRank && client_sink) return client_sink(std::move(mail));
  if (mail.envelope.to.rank != kClientRank && link) return link->send(std::move(mail));
  ++unroutable;
  supervisor.bounce(mail.envelope, false);
}

void Node::Impl::drain(uint32_t slot) {
  supervisor.take(slot, batch, kDrainMax);
  if (batch.empty()) return;
  for (const Mail& mail : batch) handle(mail);
  asio::post(io, [this, slot] { drain(slot); });
}

void Node::Impl::handle(const Mail& mail) {
  const Clock::time_point begun = Clock::now();
  supervisor.dispatch(mail);
  const int64_t took_us =
      std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begun).count();
  if (took_us <= kSlowHandlerUs) return;
  ++slow_handlers;
  slowest_handler_us = std::max(slowest_handler_us, took_us);
  if (log_wants(LogLevel::debug)) {
    log_debug(std::string("handler of ") + msg_kind_name(mail.envelope.kind) + " in slot " +
              std::to_string(mail.envelope.to.slot) + " held the loop for " +
              std::to_string(took_us) + " us");
  }
}

void Node::Impl::wake_at(Micros at) {
  if (at == kNever) return;
  timer.expires_at(began + std::chrono::microseconds(at));
  timer.async_wait([this](const boost::system::error_code& error) {
    if (!error) on_timer();
  });
}

void Node::Impl::on_timer() {
  for (uint32_t slot : supervisor.expire_timers()) {
    asio::post(io, [this, slot] { drain(slot); });
  }
}

Node::Node(const NodeOptions& options) : impl_(std::make_unique<Impl>(options)) {
  impl_->pool = std::make_unique<WorkerPool>(
      options.worker_threads, options.worker_queue_max,
      [impl = impl_.get()](Mail mail) { impl->post(std::move(mail)); });
}

Node::~Node() {
  impl_->supervisor.close();
}

void Node::add_actor(uint32_t slot, uint32_t incarnation, ActorFactory factory) {
  impl_->supervisor.add(slot, incarnation, std::move(factory));
}
void Node::set_control_link(ControlLink* link) {
  impl_->link = link;
}
void Node::set_client_sink(std::function<void(Mail)> sink) {
  impl_->client_sink = std::move(sink);
}
void Node::set_escalation(std::function<void(const ActorId&, const std::string&)> escalate) {
  impl_->escalate = std::move(escalate);
}

void Node::run() {
  // Before the loop turns: mail that waits already must find its actors.
  impl_->supervisor.start();
  impl_->io.run();
}

void Node::stop() {
  impl_->io.stop();
}

Pushed Node::post(Mail mail) {
  return impl_->post(std::move(mail));
}

void Node::run_on_loop(std::function<void()> task) {
  asio::post(impl_->io, std::move(task));
}

void Node::run_after(Micros delay, std::function<void()> task) {
  // Shared: the handler keeps the timer alive until it has run.
  auto once = std::make_shared<asio::steady_timer>(impl_->io, std::chrono::microseconds(delay));
  once->async_wait([once, task = std::move(task)](const boost::system::error_code& error) {
    if (!error) task();
  });
}

void Node::post_to_all(MsgKind kind, const std::string& body) {
  for (uint32_t slot : impl_->supervisor.slots()) {
    Mail mail;
    mail.envelope.kind = kind;
    mail.envelope.from = {rank(), 0, 0};
    mail.envelope.to = {rank(), slot, kAnyIncarnation};
    mail.body = body;
    post(std::move(mail));
  }
}

Micros Node::now() const {
  return impl_->now();
}
Workers& Node::workers() {
  return *impl_->pool;
}
uint32_t Node::rank() const {
  return impl_->options.rank;
}

NodeCounts Node::counts() const {
  return {impl_->supervisor.counts(), impl_->slow_handlers, impl_->slowest_handler_us,
          impl_->refused_full.load(), impl_->unroutable};
}

boost::asio::io_context& NodeIo::of(Node& node) {
  return node.impl_->io;
}

}  // namespace baton
