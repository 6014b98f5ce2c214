#include "runtime/node/node.h"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace baton {
namespace {

struct Ask {
  static constexpr MsgKind kind = MsgKind::cluster_query;
  uint32_t value = 0;
  BATON_FIELDS(value)
};
struct Answer {
  static constexpr MsgKind kind = MsgKind::cluster_reply;
  uint32_t value = 0;
  BATON_FIELDS(value)
};
struct Tick {
  static constexpr MsgKind kind = MsgKind::tokens;
  uint32_t value = 0;
  BATON_FIELDS(value)
};

using Handler = std::function<void(Context&, const Envelope&, MsgKind, uint32_t)>;

// Hands everything it hears to the test's function, on the loop.
class Ear final
    : public ActorOf<Ear, MessageList<Ask, Answer, Tick, Timer, Undeliverable, LinkUp>> {
 public:
  explicit Ear(Handler handler, std::function<void(Context&)> begin = {})
      : handler_(std::move(handler)), begin_(std::move(begin)) {}
  void start(Context& context) override {
    if (begin_) begin_(context);
  }
  void on(Context& c, const Envelope& e, Ask& m) { handler_(c, e, Ask::kind, m.value); }
  void on(Context& c, const Envelope& e, Answer& m) { handler_(c, e, Answer::kind, m.value); }
  void on(Context& c, const Envelope& e, Tick& m) { handler_(c, e, Tick::kind, m.value); }
  void on(Context& c, const Envelope& e, Timer& m) { handler_(c, e, Timer::kind, m.purpose); }
  void on(Context& c, const Envelope& e, LinkUp& m) { handler_(c, e, LinkUp::kind, m.rank); }
  void on(Context& c, const Envelope& e, Undeliverable& m) {
    handler_(c, e, Undeliverable::kind, m.full ? 1 : 0);
  }

 private:
  Handler handler_;
  std::function<void(Context&)> begin_;
};

template <Message M>
Mail mail_to(ActorId to, const M& message, ActorId from = {0, 9, 1}) {
  Mail mail;
  mail.envelope.kind = M::kind;
  mail.envelope.from = from;
  mail.envelope.to = to;
  mail.body = encode_body(message);
  return mail;
}

TEST_CASE("two actors of a node can talk, and a timer wakes one of them") {
  Node node({});
  std::vector<uint32_t> heard;
  node.add_actor(1, 1, [&] {
    return std::make_unique<Ear>(
        [&](Context& c, const Envelope&, MsgKind kind, uint32_t value) {
          if (kind == MsgKind::timer) c.send({0, 2, kAnyIncarnation}, Ask{value});
          if (kind == MsgKind::cluster_reply) {
            heard.push_back(value);
            node.stop();
          }
        },
        [](Context& c) { c.set_timer(2000, 41); });
  });
  node.add_actor(2, 1, [] {
    return std::make_unique<Ear>([](Context& c, const Envelope& from, MsgKind, uint32_t value) {
      c.send(from.from, Answer{value + 1});
    });
  });
  node.run();
  CHECK(heard == std::vector<uint32_t>{42});
}

TEST_CASE("mail from other threads arrives whole, each thread's in order") {
  Node node({});
  constexpr uint32_t kEach = 5000;
  uint32_t next[2] = {0, 0};
  bool in_order = true;
  node.add_actor(1, 1, [&] {
    return std::make_unique<Ear>([&](Context&, const Envelope& from, MsgKind, uint32_t value) {
      in_order &= value == next[from.from.slot]++;
      if (next[0] + next[1] == 2 * kEach) node.stop();
    });
  });
  auto flood = [&](uint32_t thread) {
    for (uint32_t i = 0; i < kEach; ++i) node.post(mail_to({0, 1, 0}, Tick{i}, {0, thread, 1}));
  };
  std::thread first(flood, 0), second(flood, 1);
  node.run();
  first.join();
  second.join();
  CHECK(in_order);
  CHECK(node.counts().actors.handled == 2 * kEach);
}

TEST_CASE("work runs on the pool and its mail comes back; a full pool says so") {
  NodeOptions options;
  options.worker_queue_max = 1;
  Node node(options);
  std::atomic<bool> gate{false};
  std::thread::id worker;
  const std::thread::id self = std::this_thread::get_id();
  node.add_actor(1, 1, [&] {
    return std::make_unique<Ear>(
        [&](Context&, const Envelope&, MsgKind, uint32_t) { node.stop(); });
  });
  auto hold = [&] {
    while (!gate) std::this_thread::yield();
    worker = std::this_thread::get_id();
    return mail_to({0, 1, 0}, Tick{1});
  };
  REQUIRE(node.workers().run(hold));
  int accepted = 0;
  for (int i = 0; i < 1000 && node.workers().run([] { return mail_to({0, 1, 0}, Tick{2}); }); ++i) {
    ++accepted;
    std::this_thread::yield();
  }
  CHECK(accepted <= 2);
  gate = true;
  node.run();
  CHECK(worker != self);
}

TEST_CASE("mail for other ranks and for clients takes its road, or comes back") {
  struct Road final : ControlLink {
    std::vector<Mail> sent;
    void send(Mail mail) override { sent.push_back(std::move(mail)); }
    void forget(uint32_t) override {}
  };
  Road road;
  std::vector<Mail> to_clients;
  std::vector<MsgKind> heard;
  {
    Node node({});
    node.add_actor(1, 1, [&] {
      return std::make_unique<Ear>(
          [&](Context&, const Envelope&, MsgKind kind, uint32_t) {
            heard.push_back(kind);
            node.stop();
          },
          [](Context& c) {
            c.send({3, 1, 0}, Ask{1});
            c.send({kClientRank, 5, 1}, Answer{1});
            c.send({0, 8, 0}, Ask{2});
          });
    });
    node.set_control_link(&road);
    node.set_client_sink([&](Mail mail) { to_clients.push_back(std::move(mail)); });
    node.run();
  }
  CHECK(road.sent.size() == 1);
  CHECK(to_clients.size() == 1);
  CHECK(heard == std::vector<MsgKind>{MsgKind::undeliverable});
}

TEST_CASE("a full mailbox is spoken of to an actor and returned to a client's listener") {
  NodeOptions options;
  options.limits.mailbox_work_max = 1;
  Node node(options);
  std::vector<uint32_t> bounced;
  node.add_actor(1, 1, [&] {
    return std::make_unique<Ear>([&](Context&, const Envelope&, MsgKind kind, uint32_t value) {
      if (kind != MsgKind::undeliverable) return;
      bounced.push_back(value);
      node.stop();
    });
  });
  node.add_actor(2, 1,
                 [] { return std::make_unique<Ear>([](auto&, auto&, MsgKind, uint32_t) {}); });
  CHECK(node.post(mail_to({0, 2, 0}, Ask{1}, {kClientRank, 4, 1})) == Pushed::accepted);
  CHECK(node.post(mail_to({0, 2, 0}, Ask{2}, {kClientRank, 4, 1})) == Pushed::full);
  CHECK(node.post(mail_to({0, 2, 0}, Ask{3}, {0, 1, 1})) == Pushed::full);
  CHECK(node.post(mail_to({0, 7, 0}, Ask{3}, {kClientRank, 4, 1})) == Pushed::closed);
  node.run();
  CHECK(bounced == std::vector<uint32_t>{1});
}

TEST_CASE("a handler that holds the loop is counted, and everybody hears a link's news") {
  Node node({});
  int links = 0;
  auto ear = [&] {
    return std::make_unique<Ear>([&](Context&, const Envelope&, MsgKind kind, uint32_t) {
      if (kind == MsgKind::tokens) std::this_thread::sleep_for(std::chrono::milliseconds(3));
      if (kind == MsgKind::link_up && ++links == 2) node.stop();
    });
  };
  node.add_actor(1, 1, ear);
  node.add_actor(2, 1, ear);
  node.post(mail_to({0, 1, 0}, Tick{1}));
  node.run_on_loop([&] { node.run_after(1000, [&] { node.tell_all(LinkUp{2, 1}); }); });
  node.run();
  CHECK(links == 2);
  CHECK(node.counts().slow_handlers == 1);
  CHECK(node.counts().slowest_handler_us >= 3000);
}

TEST_CASE("an actor that fails too often is reported to the host") {
  Node node({});
  std::string why;
  node.add_actor(1, 1, [&] {
    return std::make_unique<Ear>(
        [](Context&, const Envelope&, MsgKind, uint32_t) { throw ActorBroken("again"); });
  });
  node.set_escalation([&](const ActorId&, const std::string& reason) {
    why = reason;
    node.stop();
  });
  for (int i = 0; i < 4; ++i) node.post(mail_to({0, 1, 0}, Tick{1}));
  node.run();
  CHECK(why == "again");
}

}  // namespace
}  // namespace baton
