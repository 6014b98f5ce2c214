#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/actor/control_link.h"
#include "runtime/actor/supervisor.h"
#include "runtime/actor/wire.h"
#include "runtime/actor/workers.h"

namespace baton {

class World;

// One life of one simulated process (a rank): its actors, and the objects that end with it. The
// world makes it at boot and destroys it at a crash. What it schedules happens only in this life,
// and never while the process is stalled.
class SimHost {
 public:
  SimHost(World& world, uint32_t rank, uint32_t life);
  ~SimHost();
  SimHost(const SimHost&) = delete;
  SimHost& operator=(const SimHost&) = delete;

  uint32_t rank() const { return rank_; }
  uint32_t life() const { return life_; }
  World& world() { return world_; }

  // While booting. Incarnations of a life start at life * kIncarnationsPerLife + 1.
  static constexpr uint32_t kIncarnationsPerLife = 1000;
  void add_actor(uint32_t slot, ActorFactory factory);
  void set_control_link(ControlLink* link) { link_ = link; }
  void set_client_sink(std::function<void(Mail)> sink) { client_sink_ = std::move(sink); }
  // Keeps an object for as long as the process lives; actors end before it.
  template <class T, class... Args>
  T& own(Args&&... args) {
    auto object = std::make_shared<T>(std::forward<Args>(args)...);  // shared: erases the type
    owned_.push_back(object);
    return *object;
  }

  Pushed post(Mail mail);
  template <Message M>
  void tell_all(const M& message) {
    post_to_all(M::kind, encode_body(message));
  }
  void later(Micros delay, std::function<void()> task);
  Workers& workers();

  Supervisor& supervisor() { return supervisor_; }
  const Supervisor& supervisor() const { return supervisor_; }

  // A drain of a mailbox waits for up to this long: how busy the loop is.
  void set_pace(Micros handler_us_max) { handler_us_max_ = handler_us_max; }

 private:
  friend class World;
  class VirtualWorkers;
  void post_to_all(MsgKind kind, const std::string& body);
  void schedule_drain(uint32_t slot);
  void drain(uint32_t slot);
  void wake_at(Micros at);

  World& world_;
  const uint32_t rank_;
  const uint32_t life_;
  Micros handler_us_max_ = 20;
  ControlLink* link_ = nullptr;
  std::function<void(Mail)> client_sink_;
  std::vector<std::shared_ptr<void>> owned_;
  std::unique_ptr<VirtualWorkers> workers_;
  std::vector<Mail> batch_;
  Supervisor supervisor_;  // last: its actors end first
};

}  // namespace baton
