#include "runtime/sim/network.h"

#include <algorithm>
#include <utility>

namespace baton {

void Network::send(uint32_t source, uint32_t target, std::function<void()> deliver) {
  const Path path{source, target};
  if (is_cut(source, target)) return;
  if (!world_.random().chance(faults_.drop)) send_once(path, deliver);
  if (world_.random().chance(faults_.duplicate)) send_once(path, deliver);
}

void Network::send_once(const Path& path, const std::function<void()>& deliver) {
  SimRandom& random = world_.random();
  Micros delay = random.between(faults_.latency_min, faults_.latency_max);
  if (random.chance(faults_.late)) delay += random.between(0, faults_.late_max);
  const auto clogged = clogged_until_.find(path);
  if (clogged != clogged_until_.end()) {
    delay += std::max<Micros>(clogged->second - world_.now(), 0);
  }
  world_.at_rank(path.second, delay, deliver);
}

void Network::cut(uint32_t source, uint32_t target, Micros duration) {
  world_.note("cut from rank " + std::to_string(source) + " to " + std::to_string(target) +
              " for " + std::to_string(duration) + " us");
  Micros& until = cut_until_[{source, target}];
  until = std::max(until, world_.now() + duration);
}

void Network::clog(uint32_t source, uint32_t target, Micros duration) {
  world_.note("clog from rank " + std::to_string(source) + " to " + std::to_string(target) +
              " for " + std::to_string(duration) + " us");
  Micros& until = clogged_until_[{source, target}];
  until = std::max(until, world_.now() + duration);
}

bool Network::is_cut(uint32_t source, uint32_t target) const {
  const auto found = cut_until_.find({source, target});
  return found != cut_until_.end() && found->second > world_.now();
}

void Network::heal() {
  cut_until_.clear();
  clogged_until_.clear();
  faults_ = NetworkFaults{};
}

void DirectLink::send(Mail mail) {
  World& world = host_.world();
  const uint32_t target = mail.envelope.to.rank;
  if (!world.is_up(target)) {
    const uint32_t life = world.life(target);
    if (std::exchange(lost_[target], life) != life) {
      host_.later(1, [this, target] {
        host_.tell_all(LinkDown{target, 0, true, "the process is gone"});
      });
    }
    return;
  }
  std::shared_ptr<Road>& road = roads_[target];
  if (!road) road = std::make_shared<Road>();
  road->last_arrival =
      std::max(road->last_arrival + 1, world.now() + world.random().between(20, 200));
  road->mail.push_back(std::move(mail));
  // Each arrival takes what is next in line: a stalled target must not mix up the order.
  world.at_rank(target, road->last_arrival - world.now(), [&world, target, road = road] {
    Mail next = std::move(road->mail.front());
    road->mail.pop_front();
    world.host(target).post(std::move(next));
  });
}

}  // namespace baton
