#include "actors/worker/joining.h"

#include "tests/unit/actors/worker/benches.h"

namespace baton::test {

TEST_CASE("a worker asks to be taken in until it is welcome, less and less often") {
  KvNetwork network;
  ScriptedEngine engine({});
  FakeMover mover(network, engine);
  PrefillOptions options;
  options.engine = &engine;
  options.mover = &mover;
  options.host = "node7";
  options.instance = {3};
  Prefill actor(options);
  FakeContext context(kSource);
  actor.start(context);
  const auto asked = context.expect<Register>();
  CHECK(asked.envelope.to == ActorId{0, kSchedulerSlot, kAnyIncarnation});
  CHECK(asked.message.role == Role::prefill);
  CHECK(asked.message.host == "node7");
  CHECK(asked.message.instance.value == 3);
  CHECK(asked.message.numerics_id == 11);
  CHECK(asked.message.model_hash == 22);
  CHECK(asked.message.capacity.blocks == 16);
  CHECK(asked.message.capacity.slots == 0);
  CHECK(asked.message.capacity.context_max == 256);
  CHECK(asked.message.geometry == engine.geometry());
  context.advance(actor, 100 * kMillisecond);
  CHECK(context.count<Register>() == 1);
  context.advance(actor, 100 * kMillisecond);
  CHECK(context.count<Register>() == 1);
  context.advance(actor, 60 * kSecond);
  CHECK(context.count<Register>() < 20);
  CHECK(context.count<Beat>() == 0);
  context.forget_sent();
  context.deliver(actor, kScheduler, Welcome{5});
  CHECK(actor.joining().joined());
  CHECK(actor.joining().boot_epoch() == 5);
  context.advance(actor, 10 * kSecond);
  CHECK(context.count<Register>() == 0);
}

TEST_CASE("T21: beats come from the loop's timer, numbered, with the echo of the last answer") {
  PrefillBench bench;
  bench.context.advance(*bench.actor, 0);
  const Beat first = bench.context.expect<Beat>().message;
  CHECK(first.seq == 1);
  CHECK(first.echo == 0);
  CHECK(first.blocks_free == 16);
  bench.hear(kScheduler, BeatAck{1});
  bench.context.advance(*bench.actor, 500 * kMillisecond);
  const Beat second = bench.context.expect<Beat>().message;
  CHECK(second.seq == 2);
  CHECK(second.echo == 1);
  bench.hear(kScheduler, BeatAck{77});  // never sent: not believed
  bench.context.advance(*bench.actor, 500 * kMillisecond);
  CHECK(bench.context.expect<Beat>().message.echo <= 3);
}

TEST_CASE("a worker goes on when the scheduler does not answer") {
  PrefillBench bench;
  bench.context.advance(*bench.actor, 120 * kSecond);
  CHECK(bench.context.count<Beat>() > 200);
  bench.run(bench.make_run(some_prompt(10), 1), life(1));
  CHECK(bench.engine.busy());
}

TEST_CASE("a life that was declared dead is over") {
  PrefillBench bench;
  CHECK_THROWS_AS(bench.hear(kScheduler, Refused{{ErrorCode::stale, "declared dead 3 s ago", 0}}),
                  ActorBroken);
}

TEST_CASE("a refusal that is not about this life is kept, and asked again rarely") {
  KvNetwork network;
  ScriptedEngine engine({});
  FakeMover mover(network, engine);
  PrefillOptions options;
  options.engine = &engine;
  options.mover = &mover;
  Prefill actor(options);
  FakeContext context(kSource);
  actor.start(context);
  context.deliver(actor, kScheduler, Refused{{ErrorCode::unsupported, "another model", 0}});
  CHECK(actor.joining().refusal() == "another model");
  CHECK(!actor.joining().joined());
  context.forget_sent();
  context.advance(actor, 20 * kSecond);
  CHECK(context.count<Register>() >= 3);
  CHECK(context.count<Register>() <= 6);
}

TEST_CASE("a process that was stopped for longer than its beats allow ends its life") {
  PrefillBench bench;
  bench.context.advance(*bench.actor, kSecond);
  bench.context.stall(2400 * kMillisecond);
  bench.context.advance(*bench.actor, kSecond);  // late, but not too late
  bench.context.stall(4 * kSecond);
  CHECK_THROWS_AS(bench.context.advance(*bench.actor, kSecond), ActorBroken);
}

TEST_CASE("a step of an earlier life ends before a worker joins, and its transfers keep blocks") {
  KvNetwork network;
  ScriptedEngine engine({});
  FakeMover mover(network, engine);
  mover.held = {{2}, {5}};
  DecodeOptions options;
  options.engine = &engine;
  options.mover = &mover;
  engine.batch = Batch{};
  Decode actor(options);
  FakeContext context(kTarget);
  actor.start(context);
  context.advance(actor, 50 * kMillisecond);
  CHECK(context.count<Register>() == 0);
  engine.batch.reset();
  context.advance(actor, 50 * kMillisecond);
  CHECK(context.count<Register>() == 1);
  context.deliver(actor, kScheduler, Welcome{1});
  context.advance(actor, 0);
  CHECK(context.expect<Beat>().message.blocks_quarantined == 2);
  CHECK(actor.blocks_free() == 14);
  mover.held = {{5}};
  context.advance(actor, kSecond);
  CHECK(actor.blocks_free() == 15);
  mover.held = {};
  context.advance(actor, kSecond);
  CHECK(actor.blocks_free() == 16);
}

TEST_CASE("S11: options that cannot work end the actor with a sentence") {
  CHECK_THROWS_AS(PrefillBench({}, {}, {64, 128}), ActorBroken);
}

}  // namespace baton::test
