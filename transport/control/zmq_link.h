#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/actor/control_link.h"
#include "runtime/base/limits.h"
#include "runtime/base/result.h"
#include "runtime/base/time.h"
#include "transport/control/link_session.h"

namespace boost::asio {
class io_context;
}

namespace baton {

// One key pair for all ranks of a cluster, as Z85 text of 40 characters each: whoever holds the
// secret key belongs to the cluster, nobody else is let in.
struct ZmqCurve {
  std::string public_key;
  std::string secret_key;
  bool given() const { return !public_key.empty() || !secret_key.empty(); }
};

struct ZmqLinkOptions {
  uint32_t rank = 0;
  uint32_t incarnation = 1;  // of this process; greater than that of any earlier one of the rank
  std::string bind_host = "127.0.0.1";
  std::string advertise_host;  // what other ranks connect to; empty = bind_host
  bool insecure = false;       // allow other hosts without CURVE
  ZmqCurve curve;
  Limits limits;
  int linger_ms = 200;  // for what is queued when the link is closed
};

// Where a link hands what arrives, on the loop's thread.
struct ZmqLinkSinks {
  std::function<void(Mail)> mail;
  std::function<void(const LinkUp&)> up;
  std::function<void(const LinkDown&)> down;
  std::function<Micros()> now;
};

struct ZmqLinkCounters {
  LinkCounters sessions;       // sums over all peers
  uint64_t bad_frames = 0;     // not a packet of ours: dropped
  uint64_t unknown_peers = 0;  // packets of ranks that this link was never told of: dropped
  uint64_t outbox_full = 0;    // packets that did not fit; sessions send them again
};

// The control plane between ranks: a ROUTER that hears all others and a DEALER to each of them,
// with a link session per peer on top. Routing ids are automatic and mean nothing; who speaks is in
// each packet's header. Made, used and destroyed on the loop's thread; libzmq adds its own one.
class ZmqLink final : public ControlLink {
 public:
  // Binds a free port. Fails with a sentence: an address that others could reach without CURVE or
  // `insecure`, keys that are no keys, an address that is not of this machine.
  static Result<std::unique_ptr<ZmqLink>> open(boost::asio::io_context& io,
                                               const ZmqLinkOptions& options, ZmqLinkSinks sinks);
  ~ZmqLink() override;
  ZmqLink(const ZmqLink&) = delete;
  ZmqLink& operator=(const ZmqLink&) = delete;

  // Where the other ranks reach this one, with the real port: "tcp://127.0.0.1:40123".
  const std::string& endpoint() const;
  // The endpoint of another rank. A different one than before replaces the connection. Fails with
  // invalid_argument on what is not an endpoint.
  Result<void> set_peer(uint32_t rank, const std::string& endpoint);
  // Greets a peer now, so that the first mail does not wait for a connection.
  void greet(uint32_t rank);

  void send(Mail mail) override;
  void forget(uint32_t rank) override;

  // Mail that no peer has acknowledged yet.
  size_t unacked() const;
  bool up(uint32_t rank) const;
  ZmqLinkCounters counters() const;

 private:
  struct Impl;
  explicit ZmqLink(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;  // shared: a timer that has fired already looks whether it lives
};

}  // namespace baton
