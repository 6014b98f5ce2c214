#include "actors/scheduler/pairs.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace baton {
namespace {

constexpr Micros kAskAgain = kSecond;

}  // namespace

void Pairs::add(ActorId source, ActorId target, bool source_is_new, const Plan& plan, Micros now) {
  auto routed = routed_.find(plan.digest);
  if (routed == routed_.end()) {
    routed = routed_.emplace(plan.digest, route_plan(plan, terms_)).first;
  }
  Pair pair;
  pair.number = ++last_;
  pair.source = source;
  pair.target = target;
  pair.newcomer = source_is_new ? source : target;
  pair.plan = &routed->second;
  pair.asked_at = now;
  const Key key{worker_key(source), worker_key(target)};
  CHECK(pairs_.emplace(key, pair).second);
  open_.emplace(pair.number, key);
  ++waits_[pair.newcomer];
}

bool Pairs::close(const Pair& pair) {
  if (open_.erase(pair.number) == 0) return false;
  const auto waiting = waits_.find(pair.newcomer);
  if (--waiting->second > 0) return false;
  waits_.erase(waiting);
  return true;
}

void Pairs::ask(const Pair& pair, std::vector<Question>& out) const {
  if (!pair.source_agreed) {
    out.push_back(
        {pair.source,
         {pair.number, KvDirection::send, pair.target, pair.plan->plan, pair.plan->terms}});
  }
  if (!pair.target_agreed) {
    out.push_back(
        {pair.target,
         {pair.number, KvDirection::receive, pair.source, pair.plan->plan, pair.plan->terms}});
  }
}

std::vector<Pairs::Question> Pairs::questions(ActorId newcomer) const {
  std::vector<Question> out;
  for (const auto& [number, key] : open_) {
    if (const Pair& pair = pairs_.at(key); pair.newcomer == newcomer) ask(pair, out);
  }
  return out;
}

std::vector<Pairs::Question> Pairs::overdue(Micros now) {
  std::vector<Question> out;
  for (const auto& [number, key] : open_) {
    Pair& pair = pairs_.at(key);
    if (now - pair.asked_at < kAskAgain) continue;
    pair.asked_at = now;
    ask(pair, out);
  }
  return out;
}

Pair* Pairs::find_open(ActorId from, uint64_t number) {
  const auto found = open_.find(number);
  if (found == open_.end()) return nullptr;
  Pair& pair = pairs_.at(found->second);
  return pair.source == from || pair.target == from ? &pair : nullptr;
}

const Pair* Pairs::agree(ActorId from, const Connected& answer) {
  Pair* pair = find_open(from, answer.pair);
  if (!pair || pair->plan->plan.digest != answer.digest) return nullptr;
  (pair->source == from ? pair->source_agreed : pair->target_agreed) = true;
  if (!pair->agreed()) return pair;
  ++counters_.connected;
  close(*pair);
  return pair;
}

const Pair* Pairs::fail(ActorId from, uint64_t number) {
  Pair* pair = find_open(from, number);
  if (pair) ++counters_.failed;
  return pair;
}

std::vector<ActorId> Pairs::leave(ActorId life) {
  std::vector<ActorId> freed;
  for (auto at = pairs_.begin(); at != pairs_.end();) {
    if (at->second.source != life && at->second.target != life) {
      ++at;
      continue;
    }
    const ActorId newcomer = at->second.newcomer;
    if (close(at->second) && newcomer != life) freed.push_back(newcomer);
    at = pairs_.erase(at);
  }
  return freed;
}

const RoutedPlan& Pairs::plan(WorkerKey source, WorkerKey target) const {
  const auto found = pairs_.find({source, target});
  CHECK(found != pairs_.end());
  return *found->second.plan;
}

}  // namespace baton
