// Nothing starves: random arrivals, lengths, priorities, deadlines and pools, against the queue and
// the choice of instances alone.

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "actors/scheduler/admission.h"

#include <doctest/doctest.h>

using namespace baton;

namespace {

constexpr Micros kTurn = 100 * kMillisecond;
constexpr uint32_t kBlockTokens = 16;

struct Ask {
  RequestId id;
  Micros arrived = 0;
  Micros deadline = kNever;
  int32_t priority = 0;
  Need need;
  int turns = 0;  // that it keeps its slot
  int64_t level = 0;
  bool served = false;
  size_t overtaken = 0;  // by requests behind it in the line
};

struct Instance {
  uint32_t slots = 0;
  uint32_t blocks = 0;
  uint32_t slots_used = 0;
  uint32_t blocks_used = 0;
};

// One prefill instance with a window, and decode instances whose sequences end after some turns.
class Hall {
 public:
  Hall(uint32_t seed, uint32_t instances) : random_(seed), queue_(policy()), sites_(local(seed)) {
    window_ = 1 + pick(6);
    for (uint32_t i = 0; i < instances; ++i) {
      instances_.push_back({1 + pick(6), 20 + pick(60), 0, 0});
    }
    most_blocks_ = std::max_element(instances_.begin(), instances_.end(), [](auto& a, auto& b) {
                     return a.blocks < b.blocks;
                   })->blocks;
  }

  void run(int arrivals) {
    for (int turn = 0; turn < 20000; ++turn) {
      now_ += kTurn;
      while (arrivals > 0 && pick(3) != 0) {
        arrive();
        --arrivals;
      }
      finish();
      serve();
      if (arrivals == 0 && queue_.size() == 0) return;
    }
  }
  const std::map<uint64_t, Ask>& asks() const { return asks_; }
  static AdmissionPolicy policy() {
    AdmissionPolicy policy;
    policy.skips_max = 5;
    policy.ageing_us = 2 * kSecond;
    return policy;
  }
  size_t overtaken_most() const { return overtaken_most_; }

 private:
  uint32_t pick(uint32_t below) { return static_cast<uint32_t>(random_() % below); }
  static LocalPrefillPolicy local(uint32_t seed) {
    return {static_cast<LocalPrefillPolicy::Mode>(seed % 3), 30};
  }

  void arrive() {
    Ask ask;
    ask.id = {asks_.size() + 1};
    ask.arrived = now_;
    ask.priority = static_cast<int32_t>(pick(11)) - 5;
    if (pick(4) == 0) ask.deadline = now_ + pick(60) * kSecond;
    const uint32_t blocks = pick(5) == 0 ? most_blocks_ - pick(5) : 1 + pick(6);
    const uint64_t positions = uint64_t{blocks} * kBlockTokens;
    ask.need = {positions, positions, 1, 0, pick(2) == 0};
    ask.turns = 1 + static_cast<int>(pick(12));
    ask.level = queue_.level_of(ask.priority, now_);
    queue_.push(ask.id, {true, ask.level, queue_.due_of(ask.deadline, now_), ask.id.value},
                ask.need);
    asks_[ask.id.value] = ask;
  }

  void show() {
    PrefillSite prefill;
    prefill.positions_max = 1u << 20;
    prefill.window = window_;
    prefill.outstanding = prefilling_;
    prefill.positions_ahead = prefilling_ * 100;
    sites_.put({1, 3}, prefill);
    for (uint32_t i = 0; i < instances_.size(); ++i) {
      const Instance& at = instances_[i];
      DecodeSite site;
      site.positions_max = uint64_t{at.blocks} * kBlockTokens;
      site.slots = at.slots;
      site.block_tokens = kBlockTokens;
      site.room = {at.slots - at.slots_used, at.blocks - at.blocks_used, at.slots_used};
      sites_.put({2 + i, 4}, site);
    }
  }

  void serve() {
    for (show();; show()) {
      const auto next = queue_.take(sites_, now_);
      if (!next) return;
      Ask& ask = asks_.at(next->request.value);
      ask.served = true;
      for (auto& [id, other] : asks_) {
        if (other.served || other.level >= ask.level) continue;
        overtaken_most_ = std::max(overtaken_most_, ++other.overtaken);
      }
      Instance& at = instances_[next->target.rank - 2];
      const uint32_t blocks = Sites::blocks_for(ask.need, kBlockTokens);
      CHECK(at.slots_used < at.slots);
      CHECK(at.blocks_used + blocks <= at.blocks);
      ++at.slots_used;
      at.blocks_used += blocks;
      if (next->source) ++prefilling_;
      running_.push_back(
          {now_ + ask.turns * kTurn, next->target.rank - 2, blocks, next->source.has_value()});
    }
  }

  void finish() {
    std::erase_if(running_, [&](const Running& sequence) {
      if (sequence.until > now_) return false;
      --instances_[sequence.instance].slots_used;
      instances_[sequence.instance].blocks_used -= sequence.blocks;
      if (sequence.prefilled) --prefilling_;
      return true;
    });
  }

  struct Running {
    Micros until;
    uint32_t instance;
    uint32_t blocks;
    bool prefilled;
  };
  std::mt19937 random_;
  AdmissionQueue queue_;
  Sites sites_;
  uint32_t window_ = 1;
  uint32_t prefilling_ = 0;
  uint32_t most_blocks_ = 0;
  std::vector<Instance> instances_;
  std::vector<Running> running_;
  std::map<uint64_t, Ask> asks_;
  size_t overtaken_most_ = 0;
  Micros now_ = 0;
};

}  // namespace

TEST_CASE(
    "T74: every request is served, and few that come behind it in the line are served before") {
  size_t overtaken = 0;
  for (uint32_t seed = 1; seed <= 90; ++seed) {
    CAPTURE(seed);
    Hall hall(seed, 1);
    hall.run(150);
    for (const auto& [id, ask] : hall.asks()) CHECK(ask.served);
    // With one decode instance, it is kept for whoever was overtaken often enough.
    CHECK(hall.overtaken_most() <= Hall::policy().skips_max);
    overtaken = std::max(overtaken, hall.overtaken_most());
  }
  CHECK(overtaken == Hall::policy().skips_max);  // it does happen
}

TEST_CASE("with several decode instances too, nothing waits for ever") {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    Hall hall(seed, 2 + seed % 3);
    hall.run(200);
    size_t heavy = 0;
    for (const auto& [id, ask] : hall.asks()) {
      CHECK(ask.served);
      heavy += ask.need.positions > 6 * kBlockTokens;
    }
    CHECK(hall.overtaken_most() <= Hall::policy().skips_max * (heavy + 1));
  }
}

TEST_CASE(
    "waiting counts: a request gains a level per unit of time, so priorities do not starve it") {
  AdmissionPolicy policy;
  policy.ageing_us = kSecond;
  policy.priority_max = 3;
  const AdmissionQueue queue(policy);
  const int64_t patient = queue.level_of(0, 0);
  CHECK(queue.level_of(2, 1999 * kMillisecond) < patient);  // came less than two units later
  CHECK(queue.level_of(2, 2 * kSecond) == patient);         // deadlines decide
  CHECK(queue.level_of(2, 3 * kSecond) > patient);          // too late to overtake
  CHECK(queue.level_of(1000, 4 * kSecond) > patient);       // whatever it calls itself
  CHECK(queue.level_of(-1000, 0) == queue.level_of(-3, 0));
}

TEST_CASE("within a level the earlier deadline goes first, then the earlier arrival") {
  AdmissionQueue queue({});
  Sites sites;
  PrefillSite prefill;
  prefill.positions_max = 1000;
  prefill.window = 100;
  sites.put({1, 3}, prefill);
  DecodeSite decode;
  decode.positions_max = 1000;
  decode.slots = 8;
  decode.room = {8, 100, 0};
  sites.put({2, 4}, decode);
  const Need need{10, 20, 1};
  queue.push({1}, {true, 0, 900, 1}, need);
  queue.push({2}, {true, 0, 500, 2}, need);
  queue.push({3}, {true, 0, 500, 3}, need);
  queue.push({4}, {true, -1, 9000, 4}, need);
  std::vector<uint64_t> order;
  while (const auto next = queue.take(sites, 0)) order.push_back(next->request.value);
  CHECK(order == std::vector<uint64_t>{4, 2, 3, 1});
}
