#include "actors/worker/ending.h"

#include <doctest/doctest.h>

#include "actors/worker/cancelled_memory.h"
#include "actors/worker/deadline.h"

namespace baton {

TEST_CASE("T56: a stop id, the token limit or the context end a sequence") {
  StopParams stops;
  stops.max_tokens = 5;
  stops.stop_ids = {7, 9};
  CHECK(finish_after(stops, 1, 1, 11, 100) == Finish::none);
  CHECK(finish_after(stops, 9, 1, 11, 100) == Finish::stop);
  CHECK(finish_after(stops, 1, 5, 15, 100) == Finish::length);
  CHECK(finish_after(stops, 7, 5, 15, 100) == Finish::stop);
  CHECK(finish_after(stops, 1, 2, 100, 100) == Finish::length);
  CHECK(finish_after(stops, 1, 2, 99, 100) == Finish::none);
}

TEST_CASE("T65: a stop id before min_tokens does not end a sequence") {
  StopParams stops;
  stops.max_tokens = 10;
  stops.min_tokens = 3;
  stops.stop_ids = {7};
  CHECK(finish_after(stops, 7, 2, 12, 100) == Finish::none);
  CHECK(finish_after(stops, 7, 3, 13, 100) == Finish::stop);
}

TEST_CASE("an empty list of stop ids never stops") {
  StopParams stops;
  stops.max_tokens = 10;
  CHECK(finish_after(stops, 2, 9, 20, 100) == Finish::none);
}

TEST_CASE("history is needed exactly when a penalty is on") {
  SamplingParams sampling;
  CHECK(!needs_history(sampling));
  sampling.temperature = 1;
  sampling.logit_bias = {{3, 1.f}};
  CHECK(!needs_history(sampling));
  sampling.presence_penalty = 0.5f;
  CHECK(needs_history(sampling));
  sampling = {};
  sampling.repetition_penalty = 1.1f;
  CHECK(needs_history(sampling));
  sampling = {};
  sampling.frequency_penalty = -0.1f;
  CHECK(needs_history(sampling));
}

TEST_CASE("a cancelled request is remembered up to its epoch, and the oldest is forgotten") {
  CancelledMemory memory(2);
  memory.note({1}, {3});
  CHECK(memory.covers({1}, {2}));
  CHECK(memory.covers({1}, {3}));
  CHECK(!memory.covers({1}, {4}));
  CHECK(!memory.covers({2}, {1}));
  memory.note({1}, {2});
  CHECK(memory.covers({1}, {3}));
  memory.note({2}, {1});
  memory.note({3}, {1});
  CHECK(memory.size() == 2);
  CHECK(!memory.covers({1}, {1}));
  CHECK(memory.covers({3}, {1}));
}

TEST_CASE("remaining times do not overflow") {
  CHECK(deadline_after(100, kNever) == kNever);
  CHECK(deadline_after(100, 5) == 105);
  CHECK(remaining_until(kNever, 100) == kNever);
  CHECK(remaining_until(105, 100) == 5);
  CHECK(remaining_until(50, 100) == 0);
}

}  // namespace baton
