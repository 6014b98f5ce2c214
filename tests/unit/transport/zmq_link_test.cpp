#include "transport/control/zmq_link.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include <utility>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <optional>

#include "runtime/actor/wire.h"
#include "transport/control/link_packet.h"
#include "transport/control/zmq_socket.h"

using namespace baton;

namespace {

Micros steady_now() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// One end of a link and all that it has said.
struct End {
  std::unique_ptr<ZmqLink> link;
  std::vector<std::string> bodies;
  std::vector<LinkUp> ups;
  std::vector<LinkDown> downs;
};

void open_end(End& end, boost::asio::io_context& io, const ZmqLinkOptions& options) {
  auto link =
      ZmqLink::open(io, options,
                    {[&end](Mail mail) { end.bodies.push_back(std::move(mail.body)); },
                     [&end](const LinkUp& up) { end.ups.push_back(up); },
                     [&end](const LinkDown& down) { end.downs.push_back(down); }, steady_now});
  REQUIRE(link.ok());
  end.link = std::move(*link);
}

ZmqLinkOptions options_of(uint32_t rank, uint32_t incarnation = 1) {
  ZmqLinkOptions options;
  options.rank = rank;
  options.incarnation = incarnation;
  return options;
}

Mail mail_from(uint32_t from, uint32_t to, std::string body) {
  Mail mail;
  mail.envelope.kind = MsgKind::beat;
  mail.envelope.from = {from, 1, 1};
  mail.envelope.to = {to, 2, 0};
  mail.body = std::move(body);
  return mail;
}

// Two links in one process on one loop.
struct Two {
  boost::asio::io_context io{1};
  End a;
  End b;

  explicit Two(ZmqLinkOptions first = options_of(0), ZmqLinkOptions second = options_of(1)) {
    open_end(a, io, first);
    open_end(b, io, second);
    CHECK(a.link->set_peer(1, b.link->endpoint()).ok());
    CHECK(b.link->set_peer(0, a.link->endpoint()).ok());
  }
  // Runs the loop until the condition holds or the time is over.
  template <class Condition>
  bool run_until(Condition condition, int within_ms = 10'000) {
    const Micros end = steady_now() + within_ms * kMillisecond;
    while (!condition() && steady_now() < end) {
      io.restart();
      io.run_for(std::chrono::milliseconds(2));
    }
    return condition();
  }
};

// A socket that speaks to a link without being one.
struct Stranger {
  void* context = zmq_ctx_new();
  void* socket = zmq_socket(context, ZMQ_DEALER);

  explicit Stranger(const std::string& endpoint) {
    const int linger = 1000;
    zmq_setsockopt(socket, ZMQ_LINGER, &linger, sizeof linger);
    REQUIRE(zmq_connect(socket, endpoint.c_str()) == 0);
  }
  ~Stranger() {
    zmq_close(socket);
    zmq_ctx_term(context);
  }
  void say(const std::vector<std::string>& frames) {
    for (size_t i = 0; i < frames.size(); ++i) {
      zmq_send(socket, frames[i].data(), frames[i].size(), i + 1 < frames.size() ? ZMQ_SNDMORE : 0);
    }
  }
};

}  // namespace

TEST_CASE("two links exchange mail over loopback, in order and once, both ways") {
  Two two;
  CHECK(two.a.link->endpoint().rfind("tcp://127.0.0.1:", 0) == 0);
  constexpr int kCount = 5000;
  int said = 0;
  const bool all = two.run_until([&] {
    const bool room = two.a.link->unacked() + two.b.link->unacked() < 2000;
    for (int burst = 0; room && burst < 100 && said < kCount; ++burst, ++said) {
      two.a.link->send(mail_from(0, 1, "a" + std::to_string(said)));
      two.b.link->send(mail_from(1, 0, "b" + std::to_string(said)));
    }
    return two.a.bodies.size() >= kCount && two.b.bodies.size() >= kCount;
  });
  REQUIRE(all);
  int wrong = 0;
  for (int i = 0; i < kCount; ++i) {
    if (two.b.bodies[i] != "a" + std::to_string(i)) ++wrong;
    if (two.a.bodies[i] != "b" + std::to_string(i)) ++wrong;
  }
  CHECK(wrong == 0);
  CHECK(two.run_until([&] { return two.a.link->unacked() + two.b.link->unacked() == 0; }));
  REQUIRE(two.a.ups.size() == 1);
  CHECK(two.a.ups[0].rank == 1);
  CHECK(two.a.ups[0].incarnation == 1);
  CHECK(two.a.downs.empty());
}

TEST_CASE("a message of many megabytes passes, and one above the limit ends the connection only") {
  Two two;
  two.a.link->send(mail_from(0, 1, std::string(20 << 20, 'x')));
  REQUIRE(two.run_until([&] { return two.b.bodies.size() == 1; }));
  CHECK(two.b.bodies[0].size() == size_t{20} << 20);
  Stranger stranger(two.b.link->endpoint());
  stranger.say({std::string((64 << 20) + 1, 'y')});
  two.a.link->send(mail_from(0, 1, "still here"));
  CHECK(two.run_until([&] { return two.b.bodies.size() == 2; }));
}

TEST_CASE("row 42: frames that are not a packet are dropped and counted, and the link serves on") {
  Two two;
  two.a.link->greet(1);
  REQUIRE(two.run_until([&] { return two.b.link->up(0); }));
  LinkPacket packet;
  packet.source_rank = 0;
  packet.target_rank = 1;
  packet.source = {1, 1};
  const std::string header = encode_link_header(packet);
  const std::string envelope = encode_envelope(mail_from(0, 1, "").envelope);
  Envelope spoofed = mail_from(5, 1, "").envelope;
  const std::vector<std::vector<std::string>> garbage = {
      {""},
      {"GET / HTTP/1.1\r\n\r\n"},
      {header, envelope},                      // a frame is missing
      {header, envelope, "body", "extra"},     // a frame too many
      {std::string("\xdd\xff\xff\xff\xff")},   // array of 2^32-1
      {std::string(20, '\x91')},               // nested
      {std::string("\x81\xc0\xc0")},           // a map with a nil key
      {std::string("\xd4\x01\x00", 3)},        // an extension
      {header.substr(0, header.size() - 1)},   // cut
      {header + "x"},                          // bytes behind
      {header, "\xc1", "body"},                // the envelope is not msgpack
      {header, encode_envelope(spoofed), ""},  // from another rank than the packet
  };
  Stranger stranger(two.b.link->endpoint());
  for (const auto& frames : garbage) stranger.say(frames);
  CHECK(two.run_until([&] { return two.b.link->counters().bad_frames == garbage.size(); }));
  packet.source_rank = 9;
  stranger.say({encode_link_header(packet)});
  CHECK(two.run_until([&] { return two.b.link->counters().unknown_peers == 1; }));
  packet.source_rank = 0;
  packet.target = {7, 7};
  stranger.say({encode_link_header(packet)});
  CHECK(two.run_until([&] { return two.b.link->counters().sessions.stale == 1; }));
  two.a.link->send(mail_from(0, 1, "fine"));
  CHECK(two.run_until([&] { return two.b.bodies == std::vector<std::string>{"fine"}; }));
  CHECK(two.b.downs.empty());
}

TEST_CASE("a rank that comes back as another process is reported down and up, with new mail only") {
  Two two;
  two.a.link->send(mail_from(0, 1, "first"));
  REQUIRE(two.run_until([&] { return two.b.bodies.size() == 1 && two.a.link->unacked() == 0; }));
  two.b.link.reset();
  REQUIRE(two.run_until([&] { return !two.a.downs.empty(); }));
  CHECK(two.a.downs[0].certain);
  CHECK(two.a.downs[0].incarnation == 1);
  two.a.link->send(mail_from(0, 1, "for the old life"));
  two.b.bodies.clear();
  two.b.ups.clear();
  open_end(two.b, two.io, options_of(1, 2));
  CHECK(two.b.link->set_peer(0, two.a.link->endpoint()).ok());
  CHECK(two.a.link->set_peer(1, two.b.link->endpoint()).ok());
  REQUIRE(two.run_until([&] { return two.a.ups.size() == 2; }));
  CHECK(two.a.ups[1].incarnation == 2);
  two.a.link->send(mail_from(0, 1, "for the new life"));
  REQUIRE(two.run_until([&] { return !two.b.bodies.empty(); }));
  CHECK(two.b.bodies[0] == "for the new life");
}

TEST_CASE("after forget() the peer can start a new session, and old mail is gone") {
  Two two;
  two.a.link->send(mail_from(0, 1, "one"));
  REQUIRE(two.run_until([&] { return two.b.bodies.size() == 1; }));
  two.a.link->forget(1);
  CHECK(two.a.link->unacked() == 0);
  CHECK_FALSE(two.a.link->up(1));
  two.b.link->send(mail_from(1, 0, "of a session that is over"));
  REQUIRE(two.run_until([&] { return two.b.downs.size() == 1 && two.b.ups.size() == 2; }));
  CHECK(two.a.bodies.empty());
  two.b.link->send(mail_from(1, 0, "register"));
  REQUIRE(two.run_until([&] { return two.a.bodies.size() == 1; }));
  CHECK(two.a.bodies[0] == "register");
}

TEST_CASE("a killed peer process is reported at once, long before a heartbeat is missed") {
  int endpoints[2];
  int own[2];
  REQUIRE(pipe(endpoints) == 0);
  REQUIRE(pipe(own) == 0);
  auto put = [](int fd, const std::string& text) {
    REQUIRE(write(fd, (text + "\n").data(), text.size() + 1) ==
            static_cast<ssize_t>(text.size() + 1));
  };
  auto take = [](int fd) {
    std::string text;
    for (char c = 0; read(fd, &c, 1) == 1 && c != '\n';) text += c;
    return text;
  };
  const pid_t child = fork();
  if (child == 0) {
    boost::asio::io_context io{1};
    End end;
    open_end(end, io, options_of(1));
    put(endpoints[1], end.link->endpoint());
    CHECK(end.link->set_peer(0, take(own[0])).ok());
    end.link->send(mail_from(1, 0, "hello"));
    io.run_for(std::chrono::seconds(30));
    _exit(0);
  }
  boost::asio::io_context io{1};
  End end;
  open_end(end, io, options_of(0));
  CHECK(end.link->set_peer(1, take(endpoints[0])).ok());
  put(own[1], end.link->endpoint());
  auto run_until = [&](auto condition) {
    for (const Micros limit = steady_now() + 10 * kSecond; !condition() && steady_now() < limit;) {
      io.restart();
      io.run_for(std::chrono::milliseconds(1));
    }
    return condition();
  };
  REQUIRE(run_until([&] { return end.bodies.size() == 1 && end.link->unacked() == 0; }));
  // The connection to the child carries an acknowledgement, so it is made; wait for it.
  end.link->send(mail_from(0, 1, "hello"));
  REQUIRE(run_until([&] { return end.link->unacked() == 0; }));
  const Micros killed_at = steady_now();
  kill(child, SIGKILL);
  REQUIRE(run_until([&] { return !end.downs.empty(); }));
  CHECK(end.downs[0].certain);
  CHECK(end.downs[0].rank == 1);
  CHECK(steady_now() - killed_at < kSecond);  // heartbeats: 3 s
  waitpid(child, nullptr, 0);
  for (int fd : {endpoints[0], endpoints[1], own[0], own[1]}) close(fd);
}

TEST_CASE("mail for a rank that nobody named is answered with LinkDown") {
  Two two;
  two.a.link->send(mail_from(0, 7, "hello?"));
  REQUIRE(two.a.downs.size() == 1);
  CHECK(two.a.downs[0].reason == "rank 7 is not part of this cluster");
}

TEST_CASE("an address that others can reach is refused without CURVE or --insecure") {
  boost::asio::io_context io{1};
  End end;
  const ZmqLinkSinks sinks{[](Mail) {}, [](const LinkUp&) {}, [](const LinkDown&) {}, steady_now};
  ZmqLinkOptions options = options_of(0);
  options.bind_host = "0.0.0.0";
  options.advertise_host = "127.0.0.1";
  CHECK(
      ZmqLink::open(io, options, sinks).error().text ==
      "refusing to bind the control plane to 0.0.0.0 without CURVE keys: whoever reaches it could "
      "command this cluster; give keys, or --insecure on a network that is isolated");
  options.insecure = true;
  const auto open = ZmqLink::open(io, options, sinks);
  REQUIRE(open.ok());
  CHECK((*open)->endpoint().rfind("tcp://127.0.0.1:", 0) == 0);
  options.advertise_host.clear();
  CHECK(ZmqLink::open(io, options, sinks).error().text ==
        "bound to 0.0.0.0, the control plane needs the address that other ranks reach this host "
        "by");
  options.bind_host = "192.0.2.1";
  CHECK(
      ZmqLink::open(io, options, sinks).error().text.rfind("cannot bind tcp://192.0.2.1:*: ", 0) ==
      0);
  options.curve = {"short", "keys"};
  CHECK(ZmqLink::open(io, options, sinks).error().text ==
        "the CURVE keys are not a pair of Z85 keys of 40 characters each");
  CHECK((*open)->set_peer(1, "nowhere").error().code == ErrorCode::invalid_argument);
}

TEST_CASE("with CURVE, ranks that hold the cluster's key talk and others are not let in") {
  char public_key[41];
  char secret_key[41];
  REQUIRE(zmq_curve_keypair(public_key, secret_key) == 0);
  ZmqLinkOptions first = options_of(0);
  first.curve = {public_key, secret_key};
  ZmqLinkOptions second = options_of(1);
  second.curve = first.curve;
  Two two(first, second);
  two.a.link->send(mail_from(0, 1, "secret"));
  REQUIRE(two.run_until([&] { return two.b.bodies.size() == 1; }));

  LinkPacket packet;
  packet.source_rank = 9;
  packet.target_rank = 1;
  packet.source = {1, 1};
  {
    Stranger plain(two.b.link->endpoint());
    plain.say({encode_link_header(packet)});
    CHECK_FALSE(two.run_until([&] { return two.b.link->counters().unknown_peers > 0; }, 300));
    const int no_linger = 0;
    zmq_setsockopt(plain.socket, ZMQ_LINGER, &no_linger, sizeof no_linger);
  }
  // Someone who knows the public key, with a key pair of their own.
  char other_public[41];
  char other_secret[41];
  REQUIRE(zmq_curve_keypair(other_public, other_secret) == 0);
  CHECK(zap_answer({"1.0", "7", "baton", "127.0.0.1", "", "CURVE", std::string(32, 'k')},
                   public_key)[2] == "400");
  CHECK(zap_answer({"1.0"}, public_key)[2] == "400");
  Stranger keyed(two.b.link->endpoint());
  const int no_linger = 0;
  void* intruder = zmq_socket(keyed.context, ZMQ_DEALER);
  zmq_setsockopt(intruder, ZMQ_LINGER, &no_linger, sizeof no_linger);
  zmq_setsockopt(keyed.socket, ZMQ_LINGER, &no_linger, sizeof no_linger);
  zmq_setsockopt(intruder, ZMQ_CURVE_SERVERKEY, public_key, 40);
  zmq_setsockopt(intruder, ZMQ_CURVE_PUBLICKEY, other_public, 40);
  zmq_setsockopt(intruder, ZMQ_CURVE_SECRETKEY, other_secret, 40);
  REQUIRE(zmq_connect(intruder, two.b.link->endpoint().c_str()) == 0);
  const std::string header = encode_link_header(packet);
  zmq_send(intruder, header.data(), header.size(), 0);
  CHECK_FALSE(two.run_until([&] { return two.b.link->counters().unknown_peers > 0; }, 300));
  zmq_close(intruder);
}
