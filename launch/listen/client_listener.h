#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "actors/protocol/common.h"
#include "runtime/actor/message.h"
#include "runtime/base/limits.h"
#include "runtime/base/result.h"
#include "runtime/node/node.h"
#include "transport/control/zmq_pump.h"

namespace baton {

struct ListenerOptions {
  std::string endpoint;      // tcp://HOST:PORT; port * takes a free one
  bool insecure = false;     // allow an address that other hosts reach
  bool allow_admin = false;  // calls that change the server, also on such an address
  ActorId gateway{0, kGatewaySlot, kAnyIncarnation};
  Limits limits;
  size_t bad_frames_max = 100;  // per connection and minute; then it is no longer listened to
};

struct ListenerCounts {
  uint64_t messages = 0;
  uint64_t bad_frames = 0;
  uint64_t banned = 0;   // connections
  uint64_t dropped = 0;  // to clients that are gone or do not take their messages
};

// Turns the sockets of ZeroMQ clients into mail for the gateway and back. Each connection becomes
// an address (kClientRank, number, 1); a connection that ends is told as ClientGone. What is not a
// message of the client protocol is answered with ClientBadFrame, naming the fault, and counted.
// Lives on the node's loop; set up before the node runs.
class ClientListener {
 public:
  // Refuses (invalid_argument) an endpoint that ZeroMQ does not understand, that is taken, or that
  // other hosts reach without `insecure`.
  static Result<std::unique_ptr<ClientListener>> open(Node& node, const ListenerOptions& options);
  ~ClientListener();

  // The endpoint in full, with the port that was taken.
  const std::string& endpoint() const { return endpoint_; }
  const ListenerCounts& counts() const { return counts_; }

  // Mail for a client; the node's client sink.
  void deliver(const Mail& mail);

 private:
  struct Connection {
    std::string routing_id;
    int fd = -1;
    Micros minute_us = 0;  // start of the minute that bad_frames counts
    size_t bad_frames = 0;
    bool banned = false;
  };

  ClientListener(Node& node, const ListenerOptions& options);
  Result<void> bind();
  void receive(ZmqFrames frames, int fd);
  void forward(uint32_t number, Envelope envelope, std::string body);
  void refuse(uint32_t number, Connection& connection, const std::string& why);
  void refuse_update(uint32_t number, const Envelope& envelope, const std::string& body,
                     const Refusal& refusal);
  void lost(int fd);
  uint32_t number_of(const std::string& routing_id, int fd);

  Node& node_;
  const ListenerOptions options_;
  void* context_ = nullptr;
  void* socket_ = nullptr;  // until the pump owns it
  std::string endpoint_;
  std::unique_ptr<ZmqPump> pump_;
  std::unique_ptr<ZmqMonitor> monitor_;
  std::map<uint32_t, Connection> connections_;
  std::map<std::string, uint32_t> numbers_;  // by routing id
  uint32_t next_number_ = 1;
  ListenerCounts counts_;
};

}  // namespace baton
