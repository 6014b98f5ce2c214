#include "runtime/engine/cpu_engine.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>

#include "tests/unit/engine/engine_rig.h"

namespace baton {
namespace {

CpuEngineOptions small_options() {
  CpuEngineOptions options;
  options.kv_blocks = 16;
  options.step_tokens_max = 64;
  return options;
}

std::string refusal(const CpuEngineOptions& options) {
  const auto engine = CpuEngine::create(tiny_weights("Q4_1"),
                                        std::make_shared<Compute>(TeamOptions{}), options, {});
  REQUIRE_FALSE(engine.ok());
  return engine.error().text;
}

bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("work runs in the order in which it was posted, on one thread") {
  TeamOptions team;
  team.threads = 2;
  std::vector<int> order;
  std::thread::id thread;
  {
    Compute compute(team);
    CHECK(compute.threads() == 2);
    for (int i = 0; i < 100; ++i) {
      compute.post([&, i](Team& t) {
        CHECK(t.size() == 2);
        CHECK((i == 0 || std::this_thread::get_id() == thread));
        thread = std::this_thread::get_id();
        order.push_back(i);
      });
    }
    compute.run([&](Team&) { order.push_back(100); });
    CHECK(order.size() == 101);
    compute.post([&](Team&) { order.push_back(101); });
  }  // runs what is left
  CHECK(order.size() == 102);
  CHECK(std::is_sorted(order.begin(), order.end()));
}

TEST_CASE("the engine says what it is") {
  EngineRig rig(RigOptions{});
  const CpuEngine& engine = rig.engine();
  CHECK(engine.geometry().layers == 2);
  CHECK(engine.geometry().kv_heads == 2);
  CHECK(engine.geometry().head_dim == 16);
  CHECK(engine.vocabulary() == 512);
  CHECK(engine.context_max() == 512);
  CHECK(engine.step_tokens_max() == 2048);
  CHECK(engine.block_count() == 1024);
  CHECK_FALSE(engine.busy());
}

TEST_CASE("the numerics id tells apart what moves bits, and nothing else") {
  RigOptions options;
  const uint64_t id = EngineRig(options).engine().numerics_id();
  options.threads = 2;
  options.block_tokens = 64;
  options.isa = Isa::scalar;
  CHECK(EngineRig(options).engine().numerics_id() == id);
  options.kv_dtype = KvDtype::f16;
  CHECK(EngineRig(options).engine().numerics_id() != id);
  options.kv_dtype = KvDtype::bf16;
  options.mode = ActivationMode::f32;
  CHECK(EngineRig(options).engine().numerics_id() != id);
}

TEST_CASE("the model hash tells models apart") {
  const uint64_t hash = EngineRig(RigOptions{}).engine().model_hash();
  CHECK(EngineRig(RigOptions{}).engine().model_hash() == hash);
  RigOptions other;
  other.model = "Q8_0";
  CHECK(EngineRig(other).engine().model_hash() != hash);
}

TEST_CASE("impossible options are refused with a sentence") {
  CpuEngineOptions options = small_options();
  options.block_tokens = 24;
  CHECK(mentions(refusal(options), "expected 16, 32 or 64"));
  options = small_options();
  options.context_max = 1000;
  CHECK(mentions(refusal(options), "512 positions"));
  options = small_options();
  options.step_tokens_max = 0;
  CHECK(mentions(refusal(options), "--max-num-batched-tokens"));
  options = small_options();
  options.kv_blocks = 0;
  options.kv_cache_bytes = 100;
  CHECK(mentions(refusal(options), "one block of 16 tokens"));
  options.kv_cache_bytes = uint64_t{1} << 50;
  CHECK(mentions(refusal(options), "one block of 16 tokens"));
  options.kv_cache_bytes = uint64_t{1} << 42;  // 4 TiB
  CHECK(mentions(refusal(options), "lower --kv-cache-memory"));
}

TEST_CASE("loading reports progress up to all of the bytes") {
  const ModelFile file = ModelFile::open(tiny_model_path("Q4_1")).value();
  TeamOptions team;
  team.threads = 2;
  Compute compute(team);
  uint64_t last = 0;
  uint64_t total = 0;
  const auto weights = LlamaWeights::load(file, compute, [&](uint64_t done, uint64_t all) {
    CHECK(done >= last);
    CHECK(done <= all);
    last = done;
    total = all;
  });
  REQUIRE(weights.ok());
  CHECK(last == total);
  CHECK(total == (*weights)->bytes());
}

TEST_CASE("busy lasts from submit until before the mail, and the mail goes to the sender") {
  std::promise<void> hold;
  const std::shared_future<void> held = hold.get_future().share();
  std::promise<Mail> arrived;
  std::atomic<bool> busy_at_mail{true};
  CpuEngineOptions options = small_options();
  options.on_logits = [&](uint64_t, std::span<const float>) { held.wait(); };
  CpuEngine* self = nullptr;
  auto engine =
      CpuEngine::create(tiny_weights("Q4_1"), std::make_shared<Compute>(TeamOptions{}), options,
                        [&](Mail mail) {
                          busy_at_mail = self->busy();
                          arrived.set_value(std::move(mail));
                        })
          .value();
  self = engine.get();
  Batch batch;
  batch.step = {17};
  batch.rows.resize(1);
  batch.rows[0].key = 5;
  batch.rows[0].tokens = {1, 2, 3};
  batch.rows[0].blocks = {{0}};
  const ActorId sender{3, kDecodeSlot, 9};
  engine->submit(std::move(batch), sender);
  CHECK(engine->busy());
  hold.set_value();
  const Mail mail = arrived.get_future().get();
  CHECK_FALSE(busy_at_mail.load());
  CHECK(mail.envelope.to == sender);
  const StepDone done = decode_body<StepDone>(mail.body, Limits{}).value();
  CHECK(done.step.value == 17);
  REQUIRE(done.rows.size() == 1);
  CHECK(done.rows[0].key == 5);
  CHECK(done.compute_us >= 0);
}

TEST_CASE("two engines of one process share weights and team, and give the bits of one") {
  TeamOptions team;
  team.threads = 2;
  const auto compute = std::make_shared<Compute>(team);
  const auto weights = tiny_weights("Q4_1");
  const auto prefill = EngineDriver::create(weights, compute, small_options()).value();
  const auto decode = EngineDriver::create(weights, compute, small_options()).value();
  const auto first_token = [](EngineDriver& driver, uint64_t seed) {
    BatchRow row;
    row.tokens = made_up_prompt(20, seed);
    driver.reset_blocks();
    row.blocks = driver.take_blocks(20);
    return driver.step({row}).rows.front();
  };
  std::vector<RowResult> expected;
  for (uint64_t seed = 0; seed < 20; ++seed) expected.push_back(first_token(*prefill, seed));
  const auto run_all = [&](EngineDriver& driver) {
    bool same = true;
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const RowResult result = first_token(driver, seed);
      const RowSample& sample = result.samples.at(0);
      const RowSample& right = expected[seed].samples.at(0);
      same = same && sample.token == right.token && sample.logprob == right.logprob;
    }
    return same;
  };
  auto beside = std::async(std::launch::async, [&] { return run_all(*decode); });
  CHECK(run_all(*prefill));
  CHECK(beside.get());
}

TEST_CASE("warming up leaves an empty store and no trace in the results") {
  RigOptions options;
  options.kv_blocks = 20;
  EngineRig rig(options);
  Sequence s;
  s.prompt = made_up_prompt(100, 1);
  const Trace before = rig.run_alone(s, 5);
  rig.engine().warm_up();
  for (uint32_t b = 0; b < 20; ++b) {
    const auto bytes = rig.engine().block_bytes({b});
    CHECK(std::all_of(bytes.begin(), bytes.end(), [](std::byte x) { return x == std::byte{0}; }));
  }
  CHECK(same_bits(rig.run_alone(s, 5), before));
}

TEST_CASE("an engine that is destroyed finishes its batch first") {
  std::atomic<int> mails{0};
  {
    auto engine = CpuEngine::create(tiny_weights("Q4_1"), std::make_shared<Compute>(TeamOptions{}),
                                    small_options(), [&](Mail) { ++mails; })
                      .value();
    Batch batch;
    batch.rows.resize(1);
    batch.rows[0].tokens = made_up_prompt(60, 1);
    batch.rows[0].blocks = {{0}, {1}, {2}, {3}};
    engine->submit(std::move(batch), ActorId{});
  }
  CHECK(mails == 1);
}

}  // namespace baton
