#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "runtime/sim/world.h"

namespace baton {

// How bad a network is. Times in microseconds; probabilities per packet.
struct NetworkFaults {
  Micros latency_min = 20;
  Micros latency_max = 200;  // packets that draw different latencies overtake each other
  double drop = 0;
  double duplicate = 0;
  double late = 0;  // chance of a much longer way
  Micros late_max = 0;
};

// The simulated network between processes. It loses, repeats, delays and reorders packets; paths
// can be clogged (packets wait) or cut (packets are lost), one way at a time. What is carried is
// opaque: a function that hands it to the target process if that is up when it arrives.
class Network {
 public:
  explicit Network(World& world) : world_(world) {}

  void send(uint32_t source, uint32_t target, std::function<void()> deliver);

  void set_faults(const NetworkFaults& faults) { faults_ = faults; }
  // Nothing from source reaches target for at least this long.
  void cut(uint32_t source, uint32_t target, Micros duration);
  void clog(uint32_t source, uint32_t target, Micros duration);
  bool is_cut(uint32_t source, uint32_t target) const;
  // Ends cuts and clogs, and all faults but latency.
  void heal();

 private:
  using Path = std::pair<uint32_t, uint32_t>;
  void send_once(const Path& path, const std::function<void()>& deliver);

  World& world_;
  NetworkFaults faults_;
  std::map<Path, Micros> cut_until_;
  std::map<Path, Micros> clogged_until_;
};

// A reliable, ordered road between processes, for protocol tests that are not about the network.
class DirectLink final : public ControlLink {
 public:
  explicit DirectLink(SimHost& host) : host_(host) {}
  // A target that is down is reported as LinkDown, once until it is up again.
  void send(Mail mail) override;
  void forget(uint32_t) override {}

 private:
  SimHost& host_;
  // What is under way, by rank; shared with the arrivals, which may come after this process's end.
  struct Road {
    Micros last_arrival = 0;
    std::deque<Mail> mail;
  };
  std::map<uint32_t, std::shared_ptr<Road>> roads_;
  std::map<uint32_t, uint32_t> lost_;  // lives that were reported
};

}  // namespace baton
