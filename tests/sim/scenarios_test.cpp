#include <memory>

#include "launch/sim/checkers/rest_checker.h"
#include "launch/sim/expected_stream.h"
#include "launch/sim/sim_client.h"
#include "launch/sim/sim_cluster.h"

#include <doctest/doctest.h>

namespace baton {
namespace {

const ActorId kGateway{0, kGatewaySlot, 0};
const ActorId kScheduler{0, kSchedulerSlot, 0};

// A small cluster without chance faults, and clients whose every job the test knows.
struct Scene {
  SwarmPlan plan;
  std::vector<std::unique_ptr<SimClient>> clients;
  std::unique_ptr<SimCluster> cluster;

  explicit Scene(uint32_t prefill_ranks = 1, uint32_t decode_ranks = 2) {
    plan.prefill_ranks = prefill_ranks;
    plan.decode_ranks = decode_ranks;
    plan.limits.decode_slots = 4;
    SimClusterHooks hooks;
    hooks.to_client = [this](const Mail& mail) {
      clients.at(client_of_connection(mail.envelope.to.slot) - 1)->receive(mail);
    };
    cluster = std::make_unique<SimCluster>(7, plan, std::move(hooks));
    REQUIRE(world().run_until([this] { return cluster->all_joined(); }, 5 * kSecond));
  }
  World& world() { return cluster->world(); }
  ActorId prefill() const { return {cluster->prefill_ranks().front(), kPrefillSlot, 0}; }

  SimClient& submit(uint32_t tokens, int64_t deadline_ms = 0) {
    Submit submit;
    submit.job = 1;
    for (TokenId id = 1; id <= 20; ++id) submit.ids.push_back(id);
    submit.has_max_tokens = true;
    submit.max_tokens = tokens;
    submit.ignore_eos = true;
    submit.has_seed = true;
    submit.sampling.seed = 99;
    submit.sampling.top_logprobs = 0;
    submit.deadline_ms = deadline_ms;
    const auto number = static_cast<uint32_t>(clients.size() + 1);
    SimClientHooks quiet{[](const JobRecord&, const ClientTokens&) {}, [](const std::string&) {}};
    clients.push_back(std::make_unique<SimClient>(world(), number, ClientPlan{}, quiet));
    clients.back()->start({submit}, true);
    return *clients.back();
  }
  const JobRecord& job(const SimClient& client) const { return client.jobs().at(1); }
  bool right(const SimClient& client) const {
    const JobRecord& job = client.jobs().at(1);
    const ExpectedStream expected =
        expect_stream({cluster->model(), &cluster->tokenizer(), plan.context_max}, job.submit,
                      job.submit.ids, job.submit.sampling.seed, 0);
    const StreamRecord& stream = job.streams.at(0);
    return job.end == JobEnd::done && stream.ids == expected.ids &&
           stream.logprobs == expected.logprobs && stream.text == expected.text;
  }
  bool finish(const SimClient& client, Micros within = 30 * kSecond) {
    return world().run_until([&] { return client.finished(); }, within);
  }
  bool at_rest(Micros within = 60 * kSecond) {
    if (world().run_until([this] { return unrest(*cluster).empty(); }, within)) return true;
    for (const std::string& text : unrest(*cluster)) MESSAGE(text);
    return false;
  }
  // Where the request decodes, once it does.
  uint32_t decode_rank() {
    for (;;) {
      for (uint32_t rank : cluster->decode_ranks()) {
        if (cluster->decode(rank) && cluster->decode(rank)->running() > 0) return rank;
      }
      REQUIRE(world().step());
    }
  }
};

TEST_CASE("a request takes the path of the design, one hop after the other") {
  Scene scene(1, 1);
  const ActorId decode{scene.cluster->decode_ranks().front(), kDecodeSlot, 0};
  const SimClient& client = scene.submit(8);
  World& world = scene.world();
  CHECK(world.expect<Admit>(kGateway, kScheduler));
  CHECK(world.expect<Admitted>(kScheduler, kGateway));
  CHECK(world.expect<Reserve>(kScheduler, decode));
  CHECK(world.expect<Reserved>(decode, kScheduler));
  const auto run = world.expect<Run>(kScheduler, scene.prefill());
  REQUIRE(run);
  CHECK(run->message.ids.size() == 20);
  CHECK(run->message.target_blocks.size() == 2);
  CHECK(run->envelope.epoch == Epoch{1});
  const auto first = world.expect<Tokens>(scene.prefill(), kGateway);
  REQUIRE(first);
  CHECK(first->message.entries.at(0).seq == 0);
  CHECK(scene.finish(client));
  CHECK(scene.right(client));
  CHECK(scene.at_rest());
}

TEST_CASE("T20: a dead prefill rank costs those it worked for a retry, and nobody else anything") {
  Scene scene(2, 1);
  SimClient& running = scene.submit(60);
  scene.decode_rank();
  SimClient& waiting = scene.submit(10);
  const auto run = [&] {
    for (;;) {
      for (uint32_t rank : scene.cluster->prefill_ranks()) {
        if (scene.cluster->prefill(rank)->jobs() > 0) return rank;
      }
      REQUIRE(scene.world().step());
    }
  }();
  scene.world().crash(run);
  CHECK(scene.finish(waiting));
  CHECK(scene.finish(running));
  CHECK(scene.right(waiting));
  CHECK(scene.right(running));
  CHECK(scene.job(running).done.usage.attempts == 0);
}

TEST_CASE("a killed decode rank: the stream pauses for less than five seconds and goes on") {
  Scene scene;
  SimClient& client = scene.submit(60);
  const uint32_t rank = scene.decode_rank();
  scene.world().advance(20 * kMillisecond);
  const size_t before = client.jobs().at(1).streams[0].ids.size();
  CHECK(before > 0);
  CHECK(before < 60);
  scene.world().crash(rank);
  CHECK(scene.world().run_until(
      [&] { return scene.job(client).streams[0].ids.size() > before + 10; }, 5 * kSecond));
  CHECK(scene.finish(client));
  CHECK(scene.right(client));
  CHECK(scene.job(client).done.usage.attempts == 1);
}

TEST_CASE("a frozen decode rank is found within three seconds, and fenced when it wakes") {
  Scene scene;
  SimClient& client = scene.submit(60);
  const uint32_t rank = scene.decode_rank();
  scene.world().stall(rank, 10 * kSecond);
  CHECK(scene.world().expect<PeerDown>(kScheduler, scene.prefill(), 3500 * kMillisecond));
  CHECK(scene.finish(client));
  CHECK(scene.right(client));
  const uint32_t life = scene.world().host(rank).supervisor().incarnation(kDecodeSlot);
  scene.world().advance(12 * kSecond);
  CHECK(scene.world().host(rank).supervisor().incarnation(kDecodeSlot) > life);
  CHECK(scene.cluster->all_joined());
  scene.plan.limits = {};
  CHECK(scene.at_rest());
}

TEST_CASE("T17: a client that is gone frees its slot and blocks within its grace and a second") {
  Scene scene;
  SimClient& client = scene.submit(100);
  scene.decode_rank();
  client.leave();
  CHECK(scene.at_rest(Limits{}.client_grace_us + kSecond));
}

TEST_CASE("T13: a client that leaves before the first token stops prefill, transfer and decode") {
  Scene scene;
  SimClient& client = scene.submit(100);
  REQUIRE(scene.world().expect<Run>(kScheduler, scene.prefill()));
  client.leave();
  CHECK(scene.at_rest(Limits{}.client_grace_us + kSecond));
}

TEST_CASE("T14: a client that leaves between prefill and adoption strands nothing") {
  Scene scene;
  scene.cluster->fabric().set_faults({.piece_us_min = 400000, .piece_us_max = 500000});
  SimClient& client = scene.submit(100);
  REQUIRE(scene.world().expect<PrefillDone>(scene.prefill(), kScheduler));
  client.leave();
  CHECK(scene.at_rest(Limits{}.client_grace_us + 2 * kSecond));
}

TEST_CASE("T15: a thousand requests, given up at random moments, leave all slots and blocks free") {
  Scene scene;
  SimRandom& random = scene.world().random();
  for (int i = 0; i < 1000; ++i) {
    SimClient& client = scene.submit(40);
    scene.world().at(random.between(0, 600 * kMillisecond), [&client] { client.leave(); });
    scene.world().advance(random.between(0, 10 * kMillisecond));
  }
  CHECK(scene.at_rest(20 * kSecond));
  SimClient& last = scene.submit(10);
  CHECK(scene.finish(last));
  CHECK(scene.right(last));
}

TEST_CASE("a scheduler that was stopped for five seconds declares nobody dead") {
  Scene scene;
  SimClient& client = scene.submit(60);
  scene.decode_rank();
  scene.world().stall(0, 5 * kSecond);
  CHECK(scene.finish(client));
  CHECK(scene.right(client));
  CHECK(scene.cluster->scheduler()->counters().migrations == 0);
  CHECK(scene.cluster->scheduler()->members().counters().deaths == 0);
}

TEST_CASE("a link that is down for a second moves nothing, one that is down for long fences") {
  Scene scene;
  SimClient& client = scene.submit(60);
  const uint32_t rank = scene.decode_rank();
  scene.cluster->network().cut(rank, 0, kSecond);
  CHECK(scene.finish(client));
  CHECK(scene.cluster->scheduler()->members().counters().deaths == 0);

  SimClient& second = scene.submit(100);
  const uint32_t again = scene.decode_rank();
  scene.cluster->network().cut(again, 0, 30 * kSecond);
  CHECK(scene.finish(second));
  CHECK(scene.right(second));
  CHECK(scene.cluster->scheduler()->members().counters().deaths == 1);
}

TEST_CASE("a bit that flips on the way is found before the block is used") {
  Scene scene;
  scene.cluster->fabric().set_faults({.corrupt = 1});
  SimClient& client = scene.submit(10);
  REQUIRE(scene.world().run_until(
      [&] { return scene.cluster->scheduler()->counters().migrations > 0; }, 5 * kSecond));
  scene.cluster->fabric().set_faults({});
  CHECK(scene.finish(client));
  CHECK(scene.right(client));
}

TEST_CASE("T18: a queued request whose deadline passes is refused and never runs") {
  Scene scene(1, 1);
  scene.world().stall(scene.prefill().rank, 2 * kSecond);
  SimClient& client = scene.submit(10, 500);
  CHECK(scene.finish(client, 2 * kSecond));
  CHECK(scene.job(client).end == JobEnd::refused);
  CHECK(scene.job(client).refusal.code == ErrorCode::deadline_exceeded);
  CHECK(scene.at_rest());
}

}  // namespace
}  // namespace baton
