#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "runtime/actor/control_link.h"
#include "runtime/sim/network.h"
#include "transport/control/link_session.h"

namespace baton {

class SimLink;

// Where the links of a simulated cluster find each other; packets travel over its network, which
// is as bad as the test wants. Outlives the links.
class SimSwitch {
 public:
  SimSwitch(World& world, Network& network) : world_(world), network_(network) {}

 private:
  friend class SimLink;
  void join(SimLink& link);
  void leave(SimLink& link);  // its process is gone
  void carry(const LinkPacket& packet);
  SimLink* find(uint32_t rank) const;

  World& world_;
  Network& network_;
  std::map<uint32_t, SimLink*> links_;
};

// The links of one simulated process: the same sessions as over ZeroMQ, with the simulator's
// network below them. The process owns it.
class SimLink final : public ControlLink {
 public:
  SimLink(SimSwitch& connections, SimHost& host);
  ~SimLink() override;

  void send(Mail mail) override;
  void forget(uint32_t rank) override;

  LinkCounters counters() const;  // of all sessions
  uint32_t rank() const { return host_.rank(); }

 private:
  friend class SimSwitch;
  struct Peer {
    std::unique_ptr<LinkSession> session;
    Micros tick_at = kNever;  // the earliest tick that is scheduled
  };

  Peer& peer(uint32_t rank);
  void receive(const LinkPacket& packet);
  void path_changed(uint32_t rank, bool up);
  // Carries out what a session wants after anything was done to it.
  void flush(uint32_t rank, Peer& peer);

  SimSwitch& switch_;
  SimHost& host_;
  std::map<uint32_t, Peer> peers_;
};

}  // namespace baton
