#include "runtime/sim/world.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/hash.h"

namespace baton {
namespace {

std::string text_of(const ActorId& id) {
  if (id.rank == kClientRank) return "client/" + std::to_string(id.slot);
  return std::to_string(id.rank) + "/" + std::to_string(id.slot) + "." +
         std::to_string(id.incarnation);
}

std::string text_of(Micros at) {
  std::string us = std::to_string(at % kSecond);
  return std::to_string(at / kSecond) + "." + std::string(6 - us.size(), '0') + us;
}

}  // namespace

World::World(const WorldOptions& options) : options_(options), random_(options.seed) {}

World::~World() {
  end();
}

void World::end() {
  for (auto& [rank, place] : places_) place.host.reset();
}

// ---------------------------------------------------------------- processes

void World::add_host(uint32_t rank, Boot boot_function) {
  CHECK(!places_.contains(rank));
  Place& place = places_[rank];
  place.boot = std::move(boot_function);
  boot(rank, place);
}

void World::boot(uint32_t rank, Place& place) {
  ++place.life;
  place.stalled_until = 0;
  place.host = std::make_unique<SimHost>(*this, rank, place.life);
  place.boot(*place.host);
  // Not at once: a process that boots inside another's event would run inside of it.
  schedule(*place.host, 0, [host = place.host.get()] { host->supervisor_.start(); });
}

bool World::is_up(uint32_t rank) const {
  const auto found = places_.find(rank);
  return found != places_.end() && found->second.host != nullptr;
}

bool World::is_stalled(uint32_t rank) const {
  return places_.at(rank).stalled_until > now_;
}

uint32_t World::life(uint32_t rank) const {
  return places_.at(rank).life;
}

SimHost& World::host(uint32_t rank) {
  CHECK(is_up(rank));
  return *places_.at(rank).host;
}

const SimHost& World::host(uint32_t rank) const {
  CHECK(is_up(rank));
  return *places_.at(rank).host;
}

std::vector<uint32_t> World::ranks() const {
  std::vector<uint32_t> ranks;
  for (const auto& [rank, place] : places_) ranks.push_back(rank);
  return ranks;
}

void World::crash(uint32_t rank) {
  if (!is_up(rank)) return;
  if (rank == running_) {
    crash_running_ = true;
    return;
  }
  note("crash of rank " + std::to_string(rank));
  places_.at(rank).host.reset();
}

void World::restart(uint32_t rank) {
  CHECK(!is_up(rank));
  note("restart of rank " + std::to_string(rank));
  boot(rank, places_.at(rank));
}

void World::stall(uint32_t rank, Micros duration) {
  Place& place = places_.at(rank);
  place.stalled_until = std::max(place.stalled_until, now_ + duration);
  note("stall of rank " + std::to_string(rank) + " for " + std::to_string(duration) + " us");
}

void World::fail_actor(uint32_t rank, uint32_t slot, const std::string& reason) {
  if (!is_up(rank)) return;
  note("failure of actor " + std::to_string(rank) + "/" + std::to_string(slot));
  host(rank).supervisor_.fail(slot, reason);
}

// ---------------------------------------------------------------- time

void World::at(Micros delay, std::function<void()> task) {
  push(kNoRank, kAnyLife, delay, std::move(task));
}

void World::at_rank(uint32_t rank, Micros delay, std::function<void()> task) {
  push(rank, kAnyLife, delay, std::move(task));
}

void World::schedule(const SimHost& host, Micros delay, std::function<void()> task) {
  push(host.rank(), host.life(), delay, std::move(task));
}

void World::push(uint32_t rank, uint32_t life, Micros delay, std::function<void()> task) {
  CHECK(delay >= 0);
  events_.push({now_ + delay, random_.next(), 0, rank, life, std::move(task)});
}

bool World::step() {
  if (events_.empty()) return false;
  run(events_.pop());
  return true;
}

void World::run(EventQueue::Event event) {
  now_ = std::max(now_, event.at);
  if (event.rank == kNoRank) return event.run();
  Place& place = places_.at(event.rank);
  if (!place.host || (event.life != kAnyLife && event.life != place.life)) return;
  if (place.stalled_until > now_) {
    event.at = place.stalled_until;
    return events_.push(std::move(event));
  }
  running_ = event.rank;
  event.run();
  running_ = kNoRank;
  if (std::exchange(crash_running_, false)) crash(event.rank);
}

void World::advance(Micros duration) {
  const Micros until = now_ + duration;
  while (!events_.empty() && events_.next_at() <= until) step();
  now_ = until;
}

bool World::run_until(const std::function<bool()>& done, Micros within) {
  const Micros until = within > kNever - now_ ? kNever : now_ + within;
  while (!done()) {
    if (events_.empty() || events_.next_at() > until) {
      now_ = until == kNever ? now_ : until;
      return done();
    }
    step();
  }
  return true;
}

// ---------------------------------------------------------------- mail

bool World::admit(const SimHost& host, Mail& mail) {
  if (mail.envelope.from.rank != host.rank()) return true;  // it comes from a link or a client
  if (tamper_ && !tamper_(mail)) return false;
  for (const auto& watcher : post_watchers_) watcher(mail);
  return true;
}

bool World::deliver(SimHost& host, const Mail& mail) {
  if (crash_running_) return false;
  const Interference interference = interfere_ ? interfere_(mail) : Interference::none;
  switch (interference) {
    case Interference::none: break;
    case Interference::lose:
      note(std::string("loss of a ") + msg_kind_name(mail.envelope.kind));
      return true;
    case Interference::fail_actor:
      fail_actor(host.rank(), mail.envelope.to.slot, "the simulator broke it");
      return true;
    case Interference::crash_process: crash(host.rank()); return false;
  }
  record(mail);
  for (const auto& watcher : watchers_) watcher(mail);
  if (awaited_) awaited_(mail);
  host.supervisor_.dispatch(mail);
  return !crash_running_;
}

void World::watch(std::function<void(const Mail&)> watcher) {
  watchers_.push_back(std::move(watcher));
}

void World::watch_posts(std::function<void(const Mail&)> watcher) {
  post_watchers_.push_back(std::move(watcher));
}

void World::record(const Mail& mail) {
  const Envelope& e = mail.envelope;
  ++deliveries_;
  const uint64_t target = uint64_t{e.to.rank} << 32 | uint64_t{e.to.slot} << 16;
  trace_hash_ = mix64(trace_hash_ ^ static_cast<uint64_t>(now_));
  trace_hash_ = mix64(trace_hash_ ^ (target + static_cast<uint64_t>(e.kind)));
  trace(mail);
}

void World::trace(const Mail& mail) const {
  if (!options_.trace) return;
  const Envelope& e = mail.envelope;
  std::string line =
      text_of(now_) + " " + text_of(e.from) + " -> " + text_of(e.to) + " " + msg_kind_name(e.kind);
  if (e.request.value != 0) {
    line +=
        " request " + std::to_string(e.request.value) + " epoch " + std::to_string(e.epoch.value);
  }
  options_.trace(line);
}

void World::note(const std::string& text) {
  trace_hash_ = mix64(trace_hash_ ^ hash64(text.data(), text.size(), static_cast<uint64_t>(now_)));
  if (options_.trace) options_.trace(text_of(now_) + " ** " + text);
}

void World::note_escalation(const ActorId& actor, const std::string& reason) {
  escalations_.push_back(text_of(actor) + ": " + reason);
  note("escalation of " + text_of(actor));
  at(0, [this, rank = actor.rank, life = places_.at(actor.rank).life] {
    if (is_up(rank) && this->life(rank) == life) crash(rank);
  });
}

}  // namespace baton
