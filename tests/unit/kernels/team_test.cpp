#include <doctest/doctest.h>

#include <atomic>
#include <vector>

#include "kernels/fp_mode.h"
#include "kernels/team.h"

namespace baton::test {

TEST_CASE("every thread of a team runs once a step, in the floating-point mode of the kernels") {
  for (const bool pin : {false, true}) {
    for (const int threads : {1, 2, 3}) {
      Team team({threads, pin, 0});
      REQUIRE(team.size() == threads);
      for (int step = 0; step < 200; ++step) {
        std::vector<int> ran(static_cast<std::size_t>(threads));
        std::atomic<int> wrong{0};
        team.run([&](int thread, int n) {
          ++ran[static_cast<std::size_t>(thread)];
          if (n != threads || !fp_mode_is_set()) ++wrong;
        });
        CHECK(wrong == 0);
        for (const int times : ran) CHECK(times == 1);
      }
    }
  }
}

TEST_CASE("a barrier lets nobody pass before all have come, and shows their writes") {
  for (const bool pin : {false, true}) {
    const int threads = 3;
    Team team({threads, pin, 0});
    std::vector<int> slots(threads);
    std::atomic<int> wrong{0};
    team.run([&](int thread, int n) {
      for (int round = 1; round <= 300; ++round) {
        slots[static_cast<std::size_t>(thread)] = round;
        team.barrier();
        for (const int value : slots) wrong += value != round;
        team.barrier();
      }
      (void)n;
    });
    CHECK(wrong == 0);
  }
}

TEST_CASE("the caller's floating-point mode comes back after a step") {
  Team team({2, false, 0});
  const bool before = fp_mode_is_set();
  team.run([](int, int) {});
  CHECK(fp_mode_is_set() == before);
}

TEST_CASE("a team without enough cores does not claim to be pinned") {
  CHECK_FALSE(Team({2, true, 100000}).pinned());
  CHECK_FALSE(Team({2, false, 0}).pinned());
}

TEST_CASE("shares cover all items once, in order") {
  for (const std::size_t count : {0, 1, 5, 96, 97}) {
    for (const int n : {1, 2, 3, 8}) {
      std::size_t next = 0;
      for (int t = 0; t < n; ++t) {
        const Share s = share(count, t, n);
        CHECK(s.begin == next);
        next = s.end;
      }
      CHECK(next == count);
    }
  }
}

}  // namespace baton::test
