// A prefill and a decode actor hand requests over to each other while everything that may go wrong
// does: the test plays scheduler, gateway, links and data plane, all in random order.

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>

#include "tests/unit/actors/worker/benches.h"

namespace baton::test {
namespace {

constexpr Micros kTurn = 3 * kMillisecond;

// One life of one actor, and the mail on its way to it: two lanes, each in order.
template <class A>
struct Host {
  ScriptedEngine engine;
  FakeMover mover;
  std::unique_ptr<FakeContext> context;
  std::unique_ptr<A> actor;
  std::deque<Mail> control;
  std::deque<Mail> work;

  Host(KvNetwork& network, ScriptedEngine::Shape shape) : engine(shape), mover(network, engine) {}
};

struct Request {
  std::vector<TokenId> prompt;
  uint32_t max_tokens = 1;
  uint64_t seed = 0;
  uint32_t epoch = 0;
  TransferId transfer;
  std::vector<TokenId> tokens;           // committed
  std::map<uint32_t, TokenEntry> ahead;  // of the present epoch, beyond the next one
  bool done = false;
  bool cancelled = false;
  bool waiting = true;  // to be reserved
  int gap_turns = 0;
  uint64_t not_before = 0;  // turn of the next attempt
};

class Relay {
 public:
  // `alike`: prompts begin like others, and both sides keep what they have computed for the next.
  Relay(uint32_t seed, bool alike)
      : random_(seed), alike_(alike), prefill_(network_, shape()), decode_(network_, shape()) {
    decode_.mover.receiver = true;
    limits_.decode_slots = 1 + pick(6);
    limits_.prompts_per_pack_max = 1 + pick(5);
    limits_.stream_ahead_max = 2 + pick(20);
    faults_ = pick(3);
    start_prefill(1);
    start_decode(1);
  }

  void submit() {
    Request request;
    const auto first = static_cast<TokenId>(pick(alike_ ? 3 : 900));
    request.prompt = some_prompt(1 + pick(90), first);
    request.max_tokens = 1 + pick(30);
    request.seed = random_();
    requests_[++last_request_] = request;
  }

  // One random thing happens.
  void turn(bool faults) {
    ++turns_;
    const uint32_t what = pick(100);
    if (what < 20) {
      deliver(prefill_, pick(4) != 0);
    } else if (what < 40) {
      deliver(decode_, pick(4) != 0);
    } else if (what < 50) {
      move(faults);
    } else if (what < 60) {
      complete();
    } else if (what < 68 && prefill_.engine.busy()) {
      finish(prefill_);
    } else if (what < 80 && decode_.engine.busy()) {
      finish(decode_);
    } else if (what < 90) {
      schedule();
    } else if (what < 94) {
      prefill_.context->advance(*prefill_.actor, kTurn);
      decode_.context->advance(*decode_.actor, kTurn);
    } else if (faults) {
      go_wrong();
    }
    collect();
  }

  bool idle() const {
    return std::all_of(
               requests_.begin(), requests_.end(),
               [](const auto& entry) { return entry.second.done || entry.second.cancelled; }) &&
           prefill_.control.empty() && prefill_.work.empty() && decode_.control.empty() &&
           decode_.work.empty() && prefill_.mover.sent.empty() && decode_.mover.received.empty() &&
           !prefill_.engine.busy() && !decode_.engine.busy() && network_.sends.empty() &&
           network_.receives.empty() && prefill_.actor->jobs() == 0 &&
           decode_.actor->reservations() == 0 && decode_.actor->running() == 0 && leases_.empty();
  }

  void check_end() {
    prefill_.context->advance(*prefill_.actor, kSecond);  // inherited blocks go home with a beat
    decode_.context->advance(*decode_.actor, kSecond);
    CHECK(prefill_.actor->blocks_free() == prefill_.engine.block_count());
    CHECK(decode_.actor->blocks_free() == decode_.engine.block_count());
    CHECK(decode_.actor->slots_free() == limits_.decode_slots);
    // Every drain met its send; after a rebuilt decode actor, some sends had ended before.
    if (!decode_rebuilt_) CHECK(network_.drains.empty());
    for (const auto& [id, request] : requests_) {
      CAPTURE(id);
      if (request.cancelled) continue;
      CHECK(request.tokens == expected_tokens(request.prompt, request.seed, request.max_tokens));
    }
  }
  uint64_t handed_over = 0;
  uint64_t retries = 0;
  uint64_t preempted = 0;
  uint64_t started_here = 0;
  uint64_t cache_hits = 0;  // on either side

 private:
  static ScriptedEngine::Shape shape() {
    ScriptedEngine::Shape shape;
    shape.blocks = 14;
    shape.step_tokens_max = 40;
    return shape;
  }
  uint32_t pick(uint32_t below) { return static_cast<uint32_t>(random_() % below); }

  void start_prefill(uint32_t incarnation) {
    prefill_.context = std::make_unique<FakeContext>(ActorId{1, kPrefillSlot, incarnation});
    PrefillOptions options;
    options.limits = limits_;
    options.engine = &prefill_.engine;
    options.mover = &prefill_.mover;
    options.chunking = pick(2) == 0;
    options.pack_policy = pick(2) == 0 ? PackPolicy::buckets : PackPolicy::token_budget;
    prefill_.actor = std::make_unique<Prefill>(options);
    welcome(prefill_, KvDirection::send, kTarget);
  }
  void start_decode(uint32_t incarnation) {
    decode_.context = std::make_unique<FakeContext>(ActorId{2, kDecodeSlot, incarnation});
    DecodeOptions options;
    options.limits = limits_;
    options.engine = &decode_.engine;
    options.mover = &decode_.mover;
    decode_.actor = std::make_unique<Decode>(options);
    welcome(decode_, KvDirection::receive, kSource);
  }
  template <class A>
  void welcome(Host<A>& host, KvDirection direction, ActorId peer) {
    host.actor->start(*host.context);
    host.context->deliver(*host.actor, kScheduler, Welcome{1});
    host.context->deliver(*host.actor, kScheduler, make_connect(host.engine, direction, peer));
    host.context->template take<Connected>();
  }
  PlanDigest plan_digest() const {
    return plan_reshard(prefill_.engine.placement(), decode_.engine.placement())->digest;
  }

  template <class A>
  void deliver(Host<A>& host, bool control_first) {
    auto& lane =
        (control_first && !host.control.empty()) || host.work.empty() ? host.control : host.work;
    if (lane.empty()) return;
    const Mail mail = lane.front();
    lane.pop_front();
    const ActorId to = mail.envelope.to;
    if (to.incarnation != kAnyIncarnation && to.incarnation != host.context->self().incarnation) {
      return bounce(mail);
    }
    CHECK(host.actor->receive(*host.context, mail));
  }
  void bounce(const Mail& mail) {
    const MsgKind kind = mail.envelope.kind;
    if (kind != MsgKind::kv_post && kind != MsgKind::adopt) return;
    Mail back;
    back.envelope = mail.envelope;
    back.envelope.kind = Undeliverable::kind;
    back.envelope.from = mail.envelope.to;
    back.envelope.to = mail.envelope.from;
    back.body = encode_body(Undeliverable{mail.envelope.to, static_cast<uint16_t>(kind), false});
    prefill_.control.push_back(back);
  }
  template <class A>
  void finish(Host<A>& host) {
    if (host.engine.owner == host.context->self()) {
      host.engine.finish_step(*host.context, *host.actor);
    } else {
      host.engine.batch.reset();  // of an earlier life: nobody hears of it
    }
  }

  void move(bool faults) {
    if (network_.sends.empty()) return;
    const bool corrupt = faults && faults_ > 0 && pick(12) == 0;
    move_piece(network_, pick(static_cast<uint32_t>(network_.sends.size())), prefill_.mover,
               prefill_.engine, decode_.mover, decode_.engine, corrupt);
  }
  // Completions of pieces, each in the order of its side; those of an earlier life go nowhere.
  void complete() {
    if (pick(2) == 0 && !prefill_.mover.sent.empty()) {
      const KvSent end = prefill_.mover.sent.front();
      prefill_.mover.sent.pop_front();
      prefill_.context->deliver(*prefill_.actor, kSource, end);
    } else if (!decode_.mover.received.empty()) {
      const KvReceived end = decode_.mover.received.front();
      decode_.mover.received.pop_front();
      decode_.context->deliver(*decode_.actor, kTarget, end);
    }
  }

  // ---- the scheduler's part
  template <class A, Message M>
  void send(Host<A>& host, const M& message, uint64_t id, bool control = false) {
    Mail mail;
    mail.envelope.kind = M::kind;
    mail.envelope.from = kScheduler;
    mail.envelope.to = host.context->self();
    mail.envelope.request = {id};
    if (id != 0) mail.envelope.epoch = {requests_.at(id).epoch};
    mail.body = encode_body(message);
    (control ? host.control : host.work).push_back(std::move(mail));
  }
  void schedule() {
    for (auto& [id, request] : requests_) {
      if (request.done || request.cancelled) continue;
      if (!request.waiting) {
        ask_again(id, request);
        continue;
      }
      if (turns_ < request.not_before) continue;
      request.waiting = false;
      ++request.epoch;
      request.ahead.clear();
      request.transfer = {++last_transfer_};
      Reserve reserve;
      reserve.transfer = request.transfer;
      reserve.tag_first = static_cast<uint32_t>(last_transfer_ * 50);
      reserve.source = prefill_.context->self();
      reserve.plan = plan_digest();
      reserve.tokens = static_cast<uint32_t>(request.prompt.size() + request.tokens.size());
      if (alike_) name(request, reserve);
      send(decode_, reserve, id);
      if (pick(4) == 0) return;
    }
  }
  void ask_again(uint64_t id, Request& request) {
    const auto next = static_cast<uint32_t>(request.tokens.size());
    if (pick(60) == 0) send(decode_, TokensAck{0, next}, id);
    if (request.ahead.empty() || ++request.gap_turns < 20) return;
    request.gap_turns = 0;
    send(decode_, Resend{0, next}, id);
  }
  // Blocks are named by tokens, and for some lives the decode side is to compute what is missing.
  void name(const Request& request, Reserve& reserve) {
    reserve.prefix.root = kRoot;
    reserve.prefix.weights_version = kFirstWeights;
    std::vector<TokenId> tokens = request.prompt;
    tokens.insert(tokens.end(), request.tokens.begin(), request.tokens.end());
    reserve.prefix.blocks = prefix_chain(kRoot, tokens, prefill_.engine.geometry().block_tokens);
    const uint32_t what = pick(4);
    if (what == 1) reserve.local_tokens = pick(60);
    if (what == 2) reserve.local_tokens = UINT32_MAX;
    if (what == 2) reserve.source = {};
  }
  void start(const Reserved& reserved, uint64_t id) {
    const Request& request = requests_[id];
    Start start;
    start.transfer = reserved.transfer;
    start.ids = request.prompt;
    start.committed = {request.tokens};
    start.gateway = kGateway;
    start.sampling.seed = request.seed;
    start.stops.max_tokens = request.max_tokens;
    send(decode_, start, id);
    ++started_here;
  }
  void run(const Reserved& reserved, uint64_t id) {
    const Request& request = requests_[id];
    Run run;
    run.ids = request.prompt;
    run.committed = {request.tokens};
    run.gateway = kGateway;
    run.target = decode_.context->self();
    run.transfer = reserved.transfer;
    run.tag_first = static_cast<uint32_t>(reserved.transfer.value * 50);
    run.plan = plan_digest();
    run.target_blocks = reserved.blocks;
    run.from_token = reserved.hit_tokens;
    if (alike_) run.prefix = {kRoot, kFirstWeights, {}};
    run.sampling.seed = request.seed;
    run.stops.max_tokens = request.max_tokens;
    send(prefill_, run, id);
  }
  void retry(uint64_t id) {
    Request& request = requests_.at(id);
    if (request.done || request.cancelled || request.waiting) return;
    ++retries;
    send(prefill_, Cancel{}, id, true);
    send(decode_, Cancel{}, id, true);
    request.waiting = true;
    request.not_before = turns_ + 100;
  }
  void go_wrong() {
    if (requests_.empty()) return;
    const uint64_t id = 1 + pick(static_cast<uint32_t>(last_request_));
    Request& request = requests_[id];
    const uint32_t what = pick(40);
    if (what < 4 && !request.done && !request.cancelled) {
      retry(id);
    } else if (what < 8 && !request.done && !request.cancelled) {
      request.cancelled = true;
      send(prefill_, Cancel{}, id, true);
      send(decode_, Cancel{}, id, true);
    } else if (what == 9 && faults_ == 2) {
      rebuild_prefill();
    } else if (what == 10 && faults_ == 2) {
      rebuild_decode();
    }
  }
  template <class A>
  static void drop_completions_of(Host<A>& host) {
    host.mover.sent.clear();
    host.mover.received.clear();
  }
  void rebuild_prefill() {
    const ActorId old = prefill_.context->self();
    prefill_.actor.reset();
    drop_completions_of(prefill_);
    start_prefill(old.incarnation + 1);
    send(decode_, PeerDown{old.rank, old.incarnation}, 0, true);
    // The process lives, so what it had begun to send still goes out; who takes it, drains it.
    retry_all();
  }
  void rebuild_decode() {
    const ActorId old = decode_.context->self();
    decode_rebuilt_ = true;
    decode_.actor.reset();
    drop_completions_of(decode_);
    start_decode(old.incarnation + 1);
    send(prefill_, PeerDown{old.rank, old.incarnation}, 0, true);
    leases_.clear();
    retry_all();
  }
  void retry_all() {
    for (auto& [id, request] : requests_) retry(id);
  }

  // ---- what the actors said
  void collect() {
    for (const Mail& mail : std::exchange(prefill_.context->sent, {})) take(mail);
    for (const Mail& mail : std::exchange(decode_.context->sent, {})) take(mail);
  }
  template <Message M>
  static M body(const Mail& mail) {
    return *decode_body<M>(mail.body, Limits{});
  }
  void take(const Mail& mail) {
    const ActorId to = mail.envelope.to;
    if (to.rank == 1) return prefill_.work.push_back(mail);
    if (to.rank == 2) return decode_.work.push_back(mail);
    const uint64_t id = mail.envelope.request.value;
    const bool present =
        requests_.count(id) > 0 && requests_[id].epoch == mail.envelope.epoch.value;
    switch (mail.envelope.kind) {
      case MsgKind::tokens:
        for (const TokenEntry& entry : body<Tokens>(mail).entries) commit(entry);
        break;
      case MsgKind::reserved: {
        const Reserved reserved = body<Reserved>(mail);
        for (const SlotLease& slot : reserved.slots) CHECK(leases_.insert(slot).second);
        cache_hits += reserved.hit_tokens > 0;
        if (!present || requests_[id].cancelled || requests_[id].waiting) {
          send(decode_, Release{reserved.transfer}, id);
        } else if (reserved.local) {
          start(reserved, id);
        } else {
          run(reserved, id);
        }
        break;
      }
      case MsgKind::slot_freed: CHECK(leases_.erase(body<SlotFreed>(mail).slot) == 1); break;
      case MsgKind::prefill_done:
        cache_hits += body<PrefillDone>(mail).usage.cached_tokens > 0;
        if (body<PrefillDone>(mail).finish != Finish::none) {
          send(decode_, Release{body<PrefillDone>(mail).transfer}, id);
        }
        break;
      case MsgKind::adopted: ++handed_over; break;
      case MsgKind::preempted: ++preempted; [[fallthrough]];
      case MsgKind::reserve_refused:
      case MsgKind::run_refused:
      case MsgKind::prefill_failed:
      case MsgKind::adopt_failed:
        if (present) retry(id);
        break;
      default: break;
    }
  }
  // ---- the gateway's part
  void commit(const TokenEntry& entry) {
    Request& request = requests_[entry.request.value];
    if (entry.epoch.value != request.epoch || request.waiting || request.done) return;
    CHECK(entry.finish != Finish::error);
    if (entry.seq >= request.tokens.size()) request.ahead[entry.seq] = entry;
    while (!request.ahead.empty() && request.ahead.begin()->first == request.tokens.size()) {
      const TokenEntry next = request.ahead.begin()->second;
      request.ahead.erase(request.ahead.begin());
      if (next.has_token) request.tokens.push_back(next.id);
      if (next.finish != Finish::none) request.done = true;
      if (request.done) break;
    }
    const auto reached = static_cast<uint32_t>(request.tokens.size());
    if (request.done || pick(3) == 0) {
      send(decode_, TokensAck{0, reached}, entry.request.value);
    }
  }

  static constexpr PrefixHash kRoot{3, 4};

  uint64_t turns_ = 0;
  std::mt19937 random_;
  const bool alike_;
  KvNetwork network_;
  Host<Prefill> prefill_;
  Host<Decode> decode_;
  Limits limits_;
  uint32_t faults_ = 0;
  bool decode_rebuilt_ = false;
  std::map<uint64_t, Request> requests_;
  uint64_t last_request_ = 0;
  uint64_t last_transfer_ = 0;
  std::set<SlotLease> leases_;
};

// All seeds, with what they add up to.
struct Totals {
  uint64_t handed_over = 0;
  uint64_t retries = 0;
  uint64_t preempted = 0;
  uint64_t started_here = 0;
  uint64_t cache_hits = 0;
};

Totals run_relays(uint32_t seeds, bool alike) {
  Totals totals;
  for (uint32_t seed = 1; seed <= seeds; ++seed) {
    CAPTURE(seed);
    Relay relay(seed, alike);
    for (int i = 0; i < 3000; ++i) {
      if (i % 100 == 0) relay.submit();
      relay.turn(true);
    }
    int turns = 0;
    while (!relay.idle() && turns < 400000) {
      relay.turn(false);
      ++turns;
    }
    REQUIRE(turns < 400000);
    relay.check_end();
    totals.handed_over += relay.handed_over;
    totals.retries += relay.retries;
    totals.preempted += relay.preempted;
    totals.started_here += relay.started_here;
    totals.cache_hits += relay.cache_hits;
  }
  return totals;
}

}  // namespace

TEST_CASE(
    "T7, T14, T15, promise 17: whatever happens on the way, streams are right and nothing leaks") {
  const Totals totals = run_relays(200, false);
  CHECK(totals.handed_over > 4000);
  CHECK(totals.retries > 1000);
  CHECK(totals.preempted > 50);
  CHECK(totals.started_here == 0);
  CHECK(totals.cache_hits == 0);
}

TEST_CASE(
    "T46, T47, T49, T50: the same with prompts that begin alike, caches on both sides, and prompts "
    "that the decode side computes") {
  const Totals totals = run_relays(150, true);
  CHECK(totals.handed_over > 3000);
  CHECK(totals.retries > 500);
  CHECK(totals.preempted > 30);
  CHECK(totals.started_here > 1000);
  CHECK(totals.cache_hits > 1000);
}

}  // namespace baton::test
