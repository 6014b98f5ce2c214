#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace boost::asio {
class io_context;
}

namespace baton {

using ZmqFrames = std::vector<std::string>;

// One ZeroMQ socket on an Asio loop. The only code that sends on or receives from the socket, in
// one function, because the socket's descriptor is edge-triggered and any touch consumes its edge.
// Owns the socket and closes it. Loop thread only.
class ZmqPump {
 public:
  struct Options {
    size_t outbox_max = 8192;  // messages that wait for the socket
    int burst = 64;            // messages per turn, then others of the loop run
    // A message for a peer whose pipe is full is dropped and counted, so that one peer that does
    // not read never holds up the others (ROUTER); otherwise it waits.
    bool drop_when_full = false;
  };
  // `source_fd`: descriptor of the connection that a message came by, -1 if ZeroMQ does not know.
  using Receive = std::function<void(ZmqFrames frames, int source_fd)>;

  // `socket` is a bound or connected ZeroMQ socket.
  ZmqPump(boost::asio::io_context& io, void* socket, const Options& options, Receive receive);
  ~ZmqPump();
  ZmqPump(const ZmqPump&) = delete;
  ZmqPump& operator=(const ZmqPump&) = delete;

  // Queues a message. False when the outbox is full: the peer does not keep up, or is away.
  bool send(ZmqFrames frames);
  size_t queued() const;
  // Messages that the socket refused because their peer is gone (ROUTER with mandatory routing) or,
  // with drop_when_full, does not read.
  uint64_t unroutable() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // shared with handlers that are still queued on the loop
};

// Watches a socket's connections through ZeroMQ's monitor, on the same loop.
class ZmqMonitor {
 public:
  enum class Event : uint8_t { made, lost };
  // `fd` is the connection's descriptor, as ZmqPump::Receive names it.
  using Notify = std::function<void(Event event, int fd)>;

  // Before the socket is bound or connected; `context` is its ZeroMQ context. The monitor must be
  // destroyed before the socket's pump.
  ZmqMonitor(boost::asio::io_context& io, void* context, void* socket, Notify notify);
  ~ZmqMonitor();

 private:
  void* watched_;
  std::unique_ptr<ZmqPump> pump_;
};

}  // namespace baton
