#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "actors/decode/decode.h"
#include "actors/prefill/prefill.h"
#include "tests/unit/actors/worker/kv_network.h"

namespace baton::test {

inline constexpr ActorId kScheduler{0, kSchedulerSlot, 1};
inline constexpr ActorId kGateway{0, kGatewaySlot, 1};
inline constexpr ActorId kSource{1, kPrefillSlot, 1};
inline constexpr ActorId kTarget{2, kDecodeSlot, 1};

inline std::vector<TokenId> some_prompt(uint32_t tokens, TokenId first = 1) {
  std::vector<TokenId> ids(tokens);
  for (uint32_t i = 0; i < tokens; ++i) ids[i] = static_cast<TokenId>((first + i * 7) % 1000);
  return ids;
}

// The tokens that a prompt is answered with, by the pure function.
inline std::vector<TokenId> expected_tokens(std::vector<TokenId> ids, uint64_t seed, uint32_t count,
                                            uint32_t vocabulary = 1000) {
  std::vector<TokenId> tokens;
  for (uint32_t i = 0; i < count; ++i) {
    tokens.push_back(next_token(ids, seed, vocabulary));
    ids.push_back(tokens.back());
  }
  return tokens;
}

inline Routing life(uint64_t request, uint32_t epoch = 1) {
  return {RequestId{request}, Epoch{epoch}, 0, kNever};
}

// How two instances of scripted engines are connected: whole blocks, pieces of 256 bytes.
inline Connect make_connect(const ScriptedEngine& engine, KvDirection direction, ActorId peer) {
  Connect connect;
  connect.pair = 1;
  connect.direction = direction;
  connect.peer = peer;
  connect.plan = *plan_reshard(engine.placement(), engine.placement());
  connect.terms = {1, 256, true};
  return connect;
}

// A prefill actor by itself; the test plays everyone else.
struct PrefillBench {
  explicit PrefillBench(ScriptedEngine::Shape shape = {}, Limits limits = {},
                        std::vector<uint32_t> lengths = {})
      : engine(shape), mover(network, engine) {
    PrefillOptions options;
    options.limits = limits;
    options.engine = &engine;
    options.mover = &mover;
    options.prefill_lengths = std::move(lengths);
    actor = std::make_unique<Prefill>(options);
    actor->start(context);
    context.deliver(*actor, kScheduler, Welcome{7});
    context.deliver(*actor, kScheduler, make_connect(engine, KvDirection::send, kTarget));
    context.forget_sent();
  }
  Run make_run(std::vector<TokenId> ids, uint64_t transfer, uint32_t max_tokens = 8) const {
    Run run;
    run.ids = std::move(ids);
    run.committed = {{}};
    run.gateway = kGateway;
    run.target = kTarget;
    run.transfer = {transfer};
    run.tag_first = static_cast<uint32_t>(transfer * 100);
    run.plan = plan_reshard(engine.placement(), engine.placement())->digest;
    run.stops.max_tokens = max_tokens;
    target_blocks(run);
    return run;
  }
  void target_blocks(Run& run) const {
    const size_t tokens = run.ids.size() + (run.committed.empty() ? 0 : run.committed[0].size());
    run.target_blocks.clear();
    for (uint32_t i = 0; i < engine.geometry().blocks_for(tokens); ++i) {
      run.target_blocks.push_back({1000 + i});
    }
  }
  void run(const Run& run, const Routing& routing) {
    context.deliver(*actor, kScheduler, run, routing);
  }
  template <Message M>
  void hear(ActorId from, const M& message, const Routing& routing = {}) {
    context.deliver(*actor, from, message, routing);
  }
  void step() { engine.finish_step(context, *actor); }
  void sent(uint64_t transfer, uint32_t piece, bool ok = true) {
    context.deliver(*actor, kSource, KvSent{{transfer}, piece, ok, ok ? "" : "broken", 1});
  }

  FakeContext context{kSource};
  KvNetwork network;
  ScriptedEngine engine;
  FakeMover mover;
  std::unique_ptr<Prefill> actor;
};

// A decode actor by itself; the test plays everyone else.
struct DecodeBench {
  explicit DecodeBench(ScriptedEngine::Shape shape = {}, Limits limits = default_limits(),
                       DecodeOptions given = {})
      : engine(shape), mover(network, engine), options(std::move(given)) {
    mover.receiver = true;
    options.limits = limits;
    options.engine = &engine;
    options.mover = &mover;
    actor = std::make_unique<Decode>(options);
    actor->start(context);
    context.deliver(*actor, kScheduler, Welcome{7});
    context.deliver(*actor, kScheduler, make_connect(engine, KvDirection::receive, kSource));
    context.forget_sent();
  }
  static Limits default_limits() {
    Limits limits;
    limits.decode_slots = 4;
    return limits;
  }

  Reserve make_reserve(uint64_t transfer, uint32_t tokens) const {
    Reserve reserve;
    reserve.transfer = {transfer};
    reserve.tag_first = static_cast<uint32_t>(transfer * 100);
    reserve.source = kSource;
    reserve.plan = plan_reshard(engine.placement(), engine.placement())->digest;
    reserve.tokens = tokens;
    reserve.new_tokens = 8;
    return reserve;
  }
  Reserved reserve(uint64_t transfer, uint32_t tokens, const Routing& routing) {
    context.deliver(*actor, kScheduler, make_reserve(transfer, tokens), routing);
    return context.expect<Reserved>().message;
  }
  // What the prefill side would announce: pieces by the same division.
  KvPost make_post(const Reserved& reserved, const std::vector<TokenId>& ids) {
    fill(reserved, ids);
    KvPost post;
    post.transfer = reserved.transfer;
    for (const auto& [tag, part] : network.receives) {
      if (part.transfer.transfer != reserved.transfer) continue;
      post.pieces.push_back(part.piece);
    }
    return post;
  }
  // Puts the ids where a right transfer would.
  void fill(const Reserved& reserved, const std::vector<TokenId>& ids) {
    const uint32_t block_tokens = engine.geometry().block_tokens;
    for (size_t i = 0; i < ids.size(); ++i) {
      const BlockId block = reserved.blocks[i / block_tokens];
      std::memcpy(engine.block_bytes(block).data() + i % block_tokens * 4, &ids[i], 4);
    }
  }
  void arrive(const KvPost& post, uint32_t piece, bool ok = true, uint64_t flip = 0) {
    const KvPiece& arrived = post.pieces[piece];
    network.receives.erase(arrived.tag);
    context.deliver(
        *actor, kTarget,
        KvReceived{post.transfer, piece, ok, ok ? "" : "broken", ok ? 77 ^ flip : 0, ok ? 77u : 0});
  }
  void arrive_all(const KvPost& post) {
    for (uint32_t i = 0; i < post.pieces.size(); ++i) arrive(post, i);
  }
  // Delivers the receives that the mover took back.
  void withdraw() {
    while (!mover.received.empty()) {
      const KvReceived end = mover.received.front();
      mover.received.pop_front();
      context.deliver(*actor, kTarget, end);
    }
  }
  Adopt make_adopt(const Reserved& reserved, const KvPost& post, std::vector<TokenId> ids,
                   const Routing& routing, uint32_t max_tokens = 8,
                   std::vector<TokenId> committed = {}) {
    Adopt adopt;
    adopt.transfer = reserved.transfer;
    adopt.pieces = static_cast<uint32_t>(post.pieces.size());
    adopt.gateway = kGateway;
    TokenEntry first;
    first.request = routing.request;
    first.epoch = routing.epoch;
    first.seq = static_cast<uint32_t>(committed.size());
    std::vector<TokenId> all = ids;
    all.insert(all.end(), committed.begin(), committed.end());
    first.id = next_token(all, 0, 1000);
    adopt.prompt = std::move(ids);
    adopt.committed = {std::move(committed)};
    adopt.first = {first};
    adopt.stops.max_tokens = max_tokens;
    return adopt;
  }
  // A whole hand-off; the sequence runs afterwards. Leaves nothing in context.sent but the answers
  // to the transfer's own messages.
  Reserved admit(uint64_t request, uint64_t transfer, const std::vector<TokenId>& ids,
                 uint32_t max_tokens = 8, uint32_t epoch = 1) {
    const Routing routing = life(request, epoch);
    const Reserved reserved = reserve(transfer, static_cast<uint32_t>(ids.size()), routing);
    const KvPost post = make_post(reserved, ids);
    hear(kSource, post, routing);
    arrive_all(post);
    hear(kSource, make_adopt(reserved, post, ids, routing, max_tokens), routing);
    context.expect<Adopted>(kSource);
    context.expect<Adopted>();
    while (context.take<KvDone>()) {
    }
    return reserved;
  }
  template <Message M>
  void hear(ActorId from, const M& message, const Routing& routing = {}) {
    context.deliver(*actor, from, message, routing);
  }
  void step() { engine.finish_step(context, *actor); }

  FakeContext context{kTarget};
  KvNetwork network;
  ScriptedEngine engine;
  FakeMover mover;
  DecodeOptions options;
  std::unique_ptr<Decode> actor;
};

}  // namespace baton::test
