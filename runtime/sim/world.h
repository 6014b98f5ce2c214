#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/sim/event_queue.h"
#include "runtime/sim/sim_host.h"
#include "runtime/sim/sim_random.h"

namespace baton {

struct WorldOptions {
  uint64_t seed = 1;
  Limits limits;
  std::function<void(const std::string&)> trace;  // one line for each delivery and fault
};

// What the world does to the receiver of a message, just before it would handle it.
enum class Interference : uint8_t { none, lose, fail_actor, crash_process };

// A simulated cluster: processes on one virtual clock, in one thread, all chance from one seed. The
// actors in it are the real ones. A test, or the harness in launch/sim, owns it and turns it.
class World {
 public:
  using Boot = std::function<void(SimHost&)>;

  explicit World(const WorldOptions& options);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  Micros now() const { return now_; }
  SimRandom& random() { return random_; }
  const Limits& limits() const { return options_.limits; }

  // ---- processes
  // `boot` gives each life of the rank its objects and actors; the first life starts now.
  void add_host(uint32_t rank, Boot boot);
  bool is_up(uint32_t rank) const;
  bool is_stalled(uint32_t rank) const;
  uint32_t life(uint32_t rank) const;
  SimHost& host(uint32_t rank);  // precondition: up
  const SimHost& host(uint32_t rank) const;
  std::vector<uint32_t> ranks() const;
  // The process is gone, with all it had scheduled. Inside one of its own events: right after it.
  void crash(uint32_t rank);
  // A new life; precondition: down.
  void restart(uint32_t rank);
  // The process does nothing for a while; the clock, the network and the others go on.
  void stall(uint32_t rank, Micros duration);
  void fail_actor(uint32_t rank, uint32_t slot, const std::string& reason);
  // Ends all processes, while what they use outside of them still lives.
  void end();

  // ---- time
  // Something that happens outside of any process.
  void at(Micros delay, std::function<void()> task);
  // Something that happens in whatever life the rank has then; lost when it has none.
  void at_rank(uint32_t rank, Micros delay, std::function<void()> task);
  bool step();  // one event; false: nothing is left to happen
  void advance(Micros duration);
  // Until `done` says so, at most `within`. True if it did.
  bool run_until(const std::function<bool()>& done, Micros within);

  // ---- short protocol tests
  template <class M>
  struct Delivered {
    Envelope envelope;
    M message;
  };
  // Turns the world until a message of this kind from one place reaches the other (incarnations
  // are not compared), and hands it out. Nothing if that does not happen in time.
  template <Message M>
  std::optional<Delivered<M>> expect(const ActorId& from, const ActorId& to,
                                     Micros within = kSecond);
  // Sends as `from` to an actor, over its own process.
  template <Message M>
  void inject(const ActorId& from, const ActorId& to, const M& message,
              const Routing& routing = {});

  // ---- watching and meddling
  // Sees every message just before its actor handles it.
  void watch(std::function<void(const Mail&)> watcher);
  // Sees every message as its sender posts it.
  void watch_posts(std::function<void(const Mail&)> watcher);
  // May change every message as its sender posts it, or lose it by returning false.
  void set_tamper(std::function<bool(Mail&)> tamper) { tamper_ = std::move(tamper); }
  void set_interference(std::function<Interference(const Mail&)> interfere) {
    interfere_ = std::move(interfere);
  }
  void note(const std::string& text);  // a line of the trace; part of the hash
  void trace(const Mail& mail) const;  // a line of the trace only
  // Over (time, target, kind) of every delivery, and every note.
  uint64_t trace_hash() const { return trace_hash_; }
  uint64_t deliveries() const { return deliveries_; }
  // Actors that used up their restarts; their processes end at once.
  const std::vector<std::string>& escalations() const { return escalations_; }

 private:
  friend class SimHost;
  static constexpr uint32_t kNoRank = 0xFFFFFFFFu;
  static constexpr uint32_t kAnyLife = 0;

  struct Place {
    Boot boot;
    uint32_t life = 0;  // of the present or last process; the first is 1
    std::unique_ptr<SimHost> host;
    Micros stalled_until = 0;
  };

  void boot(uint32_t rank, Place& place);
  void schedule(const SimHost& host, Micros delay, std::function<void()> task);
  void push(uint32_t rank, uint32_t life, Micros delay, std::function<void()> task);
  void run(EventQueue::Event event);
  bool admit(const SimHost& host, Mail& mail);
  // False: the process is about to end, so it handles nothing more.
  bool deliver(SimHost& host, const Mail& mail);
  void record(const Mail& mail);
  void note_escalation(const ActorId& actor, const std::string& reason);

  const WorldOptions options_;
  SimRandom random_;
  Micros now_ = 0;
  EventQueue events_;
  std::map<uint32_t, Place> places_;
  uint32_t running_ = kNoRank;  // the rank whose event runs
  bool crash_running_ = false;  // it ends right after
  std::vector<std::function<void(const Mail&)>> watchers_;
  std::vector<std::function<void(const Mail&)>> post_watchers_;
  std::function<bool(Mail&)> tamper_;
  std::function<Interference(const Mail&)> interfere_;
  std::function<bool(const Mail&)> awaited_;  // by expect(): true ends it
  uint64_t trace_hash_ = 0;
  uint64_t deliveries_ = 0;
  std::vector<std::string> escalations_;
};

template <Message M>
std::optional<World::Delivered<M>> World::expect(const ActorId& from, const ActorId& to,
                                                 Micros within) {
  std::optional<Delivered<M>> found;
  awaited_ = [&](const Mail& mail) {
    const Envelope& e = mail.envelope;
    const bool matches = e.kind == M::kind && e.from.rank == from.rank &&
                         e.from.slot == from.slot && e.to.rank == to.rank && e.to.slot == to.slot;
    if (!matches || found) return false;
    Result<M> message = decode_body<M>(mail.body, options_.limits);
    if (message.ok()) found = Delivered<M>{e, std::move(*message)};
    return true;
  };
  run_until([&] { return found.has_value(); }, within);
  awaited_ = nullptr;
  return found;
}

template <Message M>
void World::inject(const ActorId& from, const ActorId& to, const M& message,
                   const Routing& routing) {
  Mail mail;
  mail.envelope.kind = M::kind;
  mail.envelope.from = from;
  mail.envelope.to = to;
  mail.envelope.request = routing.request;
  mail.envelope.epoch = routing.epoch;
  mail.envelope.correlation = routing.correlation;
  mail.envelope.remaining_us = routing.remaining_us;
  mail.body = encode_body(message);
  host(to.rank).post(std::move(mail));
}

}  // namespace baton
