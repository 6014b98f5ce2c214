#include "tests/handoff/sides.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/base/check.h"
#include "tests/unit/transport/mover_fixture.h"
#include "transport/inproc/inproc_mover.h"

namespace baton::test {
namespace {

const ActorId kSource{1, kPrefillSlot, 1};
const ActorId kTarget{2, kDecodeSlot, 1};

void poison(CpuEngine& engine) {
  for (uint32_t rank = 0; rank < engine.placement().ranks.size(); ++rank) {
    for (uint32_t block = 0; block < engine.block_count(); ++block) {
      const std::span<std::byte> bytes = engine.block_bytes(rank, {block});
      std::memset(bytes.data(), 0xFF, bytes.size());  // NaN in every dtype
    }
  }
}

// The leg as the target begins with it: in other blocks, from behind, and with the reused tokens
// computed.
std::vector<Leg> receive(const std::vector<Leg>& legs, EngineRig& target, const Move& move,
                         uint32_t new_tokens) {
  CpuEngine& engine = target.engine();
  poison(engine);
  uint32_t next_block = engine.block_count();
  std::vector<Leg> received = legs;
  std::vector<Leg> prefixes;
  for (std::size_t i = 0; i < legs.size(); ++i) {
    Leg& leg = received[i];
    const auto prompt = static_cast<uint32_t>(leg.sequence.prompt.size());
    const uint32_t blocks = engine.geometry().blocks_for(prompt + new_tokens);
    CHECK(blocks <= next_block);
    leg.blocks.clear();
    for (uint32_t b = 0; b < blocks; ++b) leg.blocks.push_back({--next_block});
    const uint32_t reused = move.reused(i, prompt, engine.geometry().block_tokens);
    if (reused == 0) continue;
    Leg prefix;
    prefix.sequence.prompt.assign(leg.sequence.prompt.begin(),
                                  leg.sequence.prompt.begin() + reused);
    prefix.blocks = leg.blocks;
    prefixes.push_back(std::move(prefix));
  }
  target.advance(prefixes, 0);
  return received;
}

}  // namespace

bool Instances::possible(const SideShape& shape) const {
  const ModelConfig& config = tiny_weights(common_.model)->config();
  return shape.tensor_parallel <= config.heads && shape.pipeline_parallel <= config.layers;
}

EngineRig& Instances::at(const SideShape& shape) {
  for (Made& made : made_) {
    if (made.shape.tensor_parallel == shape.tensor_parallel &&
        made.shape.pipeline_parallel == shape.pipeline_parallel &&
        made.shape.block_tokens == shape.block_tokens) {
      return *made.rig;
    }
  }
  RigOptions options = common_;
  options.tensor_parallel = shape.tensor_parallel;
  options.pipeline_parallel = shape.pipeline_parallel;
  options.block_tokens = shape.block_tokens;
  options.kv_blocks = 1536 / shape.block_tokens;
  made_.push_back({shape, std::make_unique<EngineRig>(options)});
  // As a server does before KV comes from elsewhere: every rank has its pool ready after a step.
  made_.back().rig->engine().warm_up();
  return *made_.back().rig;
}

std::vector<Sequence> handoff_sequences() {
  const std::size_t sizes[] = {1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 128, 150};
  std::vector<Sequence> out;
  for (std::size_t i = 0; i < std::size(sizes); ++i) {
    Sequence s;
    s.prompt = made_up_prompt(sizes[i], 40 + i);
    s.sampling.seed = 500 + i;
    s.sampling.top_logprobs = 2;
    if (i % 2 == 1) {
      s.sampling.temperature = 0.9f;
      s.sampling.top_p = 0.95f;
      s.sampling.frequency_penalty = 0.1f;
      s.sampling.repetition_penalty = 1.1f;
    }
    if (i % 4 == 2) s.sampling.prompt_logprobs = 1;
    s.chunk = static_cast<uint32_t>(i % 3 * 20);
    out.push_back(std::move(s));
  }
  return out;
}

std::vector<Leg> prefill(EngineRig& source, const std::vector<Sequence>& sequences) {
  source.driver().reset_blocks();
  std::vector<Leg> legs;
  for (const Sequence& s : sequences) {
    legs.push_back({s, source.driver().take_blocks(s.prompt.size())});
  }
  source.advance(legs, 1);
  return legs;
}

std::vector<Trace> go_on_at(EngineRig& source, const std::vector<Leg>& legs, EngineRig& target,
                            const Move& move, uint32_t new_tokens) {
  std::vector<Leg> received = receive(legs, target, move, new_tokens);
  BlockStore store = store_of(source.engine());
  if (!move.source_ranks.empty()) store.placement.ranks = move.source_ranks;
  const auto plan = plan_between(store.placement, target.engine().placement(), move.terms);
  InprocExchange exchange;
  PieceEnds sent;
  PieceEnds arrived;
  InprocMover source_mover(exchange, store, sent.sink());
  InprocMover target_mover(exchange, store_of(target.engine()), arrived.sink());
  uint32_t tag = 1;
  for (std::size_t i = 0; i < legs.size(); ++i) {
    const auto prompt = static_cast<uint32_t>(legs[i].sequence.prompt.size());
    const uint32_t from = move.reused(i, prompt, target.engine().geometry().block_tokens);
    const uint32_t covering = target.engine().geometry().blocks_for(prompt);
    const std::vector<BlockId> table(received[i].blocks.begin(),
                                     received[i].blocks.begin() + covering);
    const KvTransfer there =
        make_transfer(i + 1, kSource, plan, KvDirection::receive, from, prompt, table, tag);
    const KvTransfer here =
        make_transfer(i + 1, kTarget, plan, KvDirection::send, from, prompt, legs[i].blocks, tag);
    CHECK_MSG(target_mover.expect(there, kTarget).ok(), "the target takes the transfer");
    CHECK_MSG(source_mover.send(here, kSource).ok(), "the source sends it");
    tag += static_cast<uint32_t>(here.pieces.size());
  }
  CHECK_MSG(arrived.wait_received(tag - 1) && sent.wait_sent(tag - 1), "all pieces end");
  for (const auto& [key, end] : arrived.received()) {
    CHECK_MSG(end.ok && end.digest == end.sent_digest, end.reason.c_str());
  }
  target.advance(received, new_tokens);
  std::vector<Trace> traces;
  for (Leg& leg : received) traces.push_back(std::move(leg.trace));
  return traces;
}

}  // namespace baton::test
