#include "actors/worker/plan_book.h"

#include "tests/unit/actors/worker/benches.h"

namespace baton::test {
namespace {

Placement parallel(uint32_t tensor, uint32_t block_tokens = 16, KvDtype dtype = KvDtype::bf16) {
  PlacementOptions options;
  options.shape = {4, 2, 8};
  options.query_heads = 4;
  options.tensor_parallel = tensor;
  options.block_tokens = block_tokens;
  options.dtype = dtype;
  return *make_placement(options);
}

struct Book {
  Book(const Placement& own, KvDirection direction)
      : book(own, direction), mover(network, engine) {}

  void connect(Connect message) {
    Envelope from;
    from.from = kScheduler;
    book.connect(context, from, message, mover);
  }

  FakeContext context{kTarget};
  KvNetwork network;
  ScriptedEngine engine{{}};
  PlanBook book;
  FakeMover mover;
};

Connect question(const Placement& source, const Placement& target, KvDirection direction) {
  Connect connect;
  connect.pair = 3;
  connect.direction = direction;
  connect.peer = kSource;
  connect.plan = *plan_reshard(source, target);
  connect.terms = {2, 4096, true};
  return connect;
}

}  // namespace

TEST_CASE("T37: a worker agrees to a plan for its own placement, and makes room for it") {
  Book target(parallel(4, 32), KvDirection::receive);
  const Connect asked = question(parallel(1), parallel(4, 32), KvDirection::receive);
  target.connect(asked);
  const auto agreed = target.context.expect<Connected>(kScheduler).message;
  CHECK(agreed.pair == 3);
  CHECK(agreed.digest == asked.plan.digest);
  REQUIRE(target.book.find(asked.plan.digest));
  CHECK(target.book.find(asked.plan.digest)->terms.layer_groups == 2);
  REQUIRE(target.mover.prepared.size() == 1);
  CHECK(target.mover.prepared[0] == target.book.find(asked.plan.digest));
  // Another pair of the same kind: the plan is known.
  target.connect(asked);
  target.context.expect<Connected>();
  CHECK(target.book.size() == 1);
  CHECK(target.mover.prepared[1] == target.mover.prepared[0]);
}

TEST_CASE("T39: a plan that is for another placement, or computed otherwise, is not agreed to") {
  Book source(parallel(2), KvDirection::send);
  Connect asked = question(parallel(2), parallel(4), KvDirection::send);
  SUBCASE("another placement") {
    asked = question(parallel(2, 32), parallel(4), KvDirection::send);
  }
  SUBCASE("another role") {
    asked.direction = KvDirection::receive;
  }
  SUBCASE("a segment from elsewhere") {
    asked.plan.segments[0].source_rank ^= 1;
  }
  SUBCASE("another digest") {
    ++asked.plan.digest.value;
  }
  SUBCASE("no terms") {
    asked.terms = {};
  }
  source.connect(asked);
  const auto failed = source.context.expect<ConnectFailed>(kScheduler).message;
  CHECK(failed.pair == 3);
  CHECK_FALSE(failed.refusal.text.empty());
  CHECK(source.book.size() == 0);
  CHECK(source.mover.prepared.empty());
}

}  // namespace baton::test
