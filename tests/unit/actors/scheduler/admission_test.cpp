#include "actors/scheduler/admission.h"

#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace baton;

namespace {

constexpr WorkerKey kPrefill{1, 3}, kDecode{2, 4}, kDecode2{3, 4};

Admit ask(size_t prompt, uint32_t max_tokens) {
  Admit admit;
  admit.ids.assign(prompt, 5);
  admit.stops.max_tokens = max_tokens;
  return admit;
}

const Reach kReach{true, true, 1000, 800, 4};

Sites sites_with(uint32_t slots_free, uint32_t blocks_free) {
  Sites sites;
  PrefillSite prefill;
  prefill.positions_max = 1000;
  prefill.window = 1000;
  sites.put(kPrefill, prefill);
  DecodeSite decode;
  decode.positions_max = 1000;
  decode.slots = 8;
  decode.room = {slots_free, blocks_free, 0};
  sites.put(kDecode, decode);
  return sites;
}

QueueRank rank(uint64_t arrival, int32_t priority = 0, Micros due = 1000, bool fresh = true) {
  return {fresh, -priority, due, arrival};
}

std::vector<uint64_t> drain(AdmissionQueue& queue, const Sites& sites) {
  std::vector<uint64_t> order;
  while (const auto next = queue.take(sites, 0)) order.push_back(next->request.value);
  return order;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a request that fits is admitted") {
  CHECK_FALSE(refuse_admit(ask(10, 20), {}, kReach, Limits{}));
  CHECK_FALSE(refuse_admit(ask(10, 0), {}, kReach, Limits{}));
}

TEST_CASE("an empty prompt and a wrong n are refused for good") {
  const auto empty = refuse_admit(ask(0, 20), {}, kReach, Limits{});
  REQUIRE(empty);
  CHECK(empty->code == ErrorCode::invalid_argument);
  CHECK(empty->retry_after_ms == 0);
  Admit none = ask(3, 3);
  none.n = 0;
  CHECK(refuse_admit(none, {}, kReach, Limits{})->code == ErrorCode::invalid_argument);
  Admit many = ask(3, 3);
  many.n = 5;
  const auto refusal = refuse_admit(many, {}, kReach, Limits{});
  REQUIRE(refusal);
  CHECK(contains(refusal->text, "n is 5"));
  CHECK(contains(refusal->text, "4 slots"));
}

TEST_CASE("T73: what could never fit is refused at once, with both numbers") {
  const auto decode = refuse_admit(ask(700, 101), {}, kReach, Limits{});
  REQUIRE(decode);
  CHECK(decode->code == ErrorCode::context_too_long);
  CHECK(contains(decode->text, "801"));
  CHECK(contains(decode->text, "decode instance holds 800"));
  CHECK(decode->retry_after_ms == 0);
  const auto prefill = refuse_admit(ask(700, 4000000000u), {}, kReach, Limits{});
  REQUIRE(prefill);
  CHECK(contains(prefill->text, "4000000700"));
  CHECK(contains(prefill->text, "prefill instance holds 1000"));
  CHECK_FALSE(refuse_admit(ask(700, 100), {}, kReach, Limits{}));
}

TEST_CASE("a full queue says busy and when to come back") {
  Limits limits;
  limits.queued_requests_max = 7;
  AdmitLoad load;
  load.queued = 7;
  load.retry_after_us = 750 * kMillisecond;
  const auto refusal = refuse_admit(ask(3, 3), load, kReach, limits);
  REQUIRE(refusal);
  CHECK(refusal->code == ErrorCode::busy);
  CHECK(refusal->retry_after_ms == 750);
  CHECK(contains(refusal->text, "the limit is 7"));
  load.queued = 6;
  CHECK_FALSE(refuse_admit(ask(3, 3), load, kReach, limits));
  load.live = limits.live_requests_max;
  CHECK(refuse_admit(ask(3, 3), load, kReach, limits)->code == ErrorCode::busy);
}

TEST_CASE("T92: without a prefill or decode instance the refusal says which is missing") {
  AdmitLoad load;
  load.serving = false;
  const auto no_decode = refuse_admit(ask(3, 3), load, {true, false, 100, 0, 0}, Limits{});
  REQUIRE(no_decode);
  CHECK(no_decode->code == ErrorCode::unavailable);
  CHECK(contains(no_decode->text, "no decode instance is alive"));
  CHECK(no_decode->retry_after_ms > 0);
  const auto no_prefill = refuse_admit(ask(3, 3), load, {false, true, 0, 100, 4}, Limits{});
  CHECK(contains(no_prefill->text, "no prefill instance is alive"));
  load.draining = true;
  CHECK(contains(refuse_admit(ask(3, 3), load, kReach, Limits{})->text, "shutting down"));
}

TEST_CASE("a deadline that has passed is not queued for") {
  AdmitLoad load;
  load.remaining_us = 0;
  CHECK(refuse_admit(ask(3, 3), load, kReach, Limits{})->code == ErrorCode::deadline_exceeded);
}

TEST_CASE("retries come first, then priority, then what is due, then arrival") {
  AdmissionQueue queue({});
  const Need need{10, 20, 1};
  queue.push({1}, rank(1, 0, 500), need);
  queue.push({2}, rank(2, 0, 400), need);
  queue.push({3}, rank(3, 5, 900), need);
  queue.push({4}, rank(4, 0, 400), need);
  queue.push({5}, rank(9, 0, 0, false), need);
  queue.push({6}, rank(8, 0, 0, false), need);
  CHECK(drain(queue, sites_with(8, 100)) == std::vector<uint64_t>{6, 5, 3, 2, 4, 1});
}

TEST_CASE("a request without a deadline is due after the policy's patience") {
  AdmissionPolicy policy;
  policy.patience_us = 1000;
  const AdmissionQueue queue(policy);
  CHECK(queue.due_of(kNever, 5) == 1005);
  CHECK(queue.due_of(300, 5) == 300);
  CHECK(queue.due_of(9000, 5) == 1005);
}

TEST_CASE("T18: a request that was removed is never taken") {
  AdmissionQueue queue({});
  queue.push({1}, rank(1), {10, 20, 1});
  queue.push({2}, rank(2), {10, 20, 1});
  CHECK(queue.remove({1}));
  CHECK_FALSE(queue.remove({1}));
  CHECK(drain(queue, sites_with(8, 100)) == std::vector<uint64_t>{2});
}

TEST_CASE("T74: a big request is overtaken by smaller ones, but not for ever") {
  AdmissionPolicy policy;
  policy.skips_max = 3;
  AdmissionQueue queue(policy);
  const Sites tight = sites_with(8, 10);  // room for 160 positions
  queue.push({1}, rank(1), {400, 600, 1});
  for (uint64_t id = 2; id <= 9; ++id) queue.push({id}, rank(id), {10, 20, 1});
  CHECK(drain(queue, tight) == std::vector<uint64_t>{2, 3, 4});
  // Now the only decode instance is kept for it.
  CHECK_FALSE(queue.take(tight, 0));
  const auto next = queue.take(sites_with(8, 30), 0);
  REQUIRE(next);
  CHECK(next->request == RequestId{1});
  CHECK(drain(queue, tight).size() == 5);
}

TEST_CASE("T74: what is kept for a big request is one instance; others go on serving") {
  AdmissionPolicy policy;
  policy.skips_max = 1;
  AdmissionQueue queue(policy);
  Sites tight = sites_with(8, 10);
  DecodeSite second;
  second.positions_max = 1000;
  second.slots = 8;
  second.room = {8, 8, 0};
  tight.put(kDecode2, second);
  queue.push({1}, rank(1), {400, 600, 1});
  for (uint64_t id = 2; id <= 5; ++id) queue.push({id}, rank(id), {10, 20, 1});
  CHECK(queue.take(tight, 0)->target == kDecode);
  for (int i = 0; i < 3; ++i) {
    const auto next = queue.take(tight, 0);
    REQUIRE(next);
    CHECK(next->target == kDecode2);
  }
  CHECK_FALSE(queue.take(tight, 0));
  CHECK(queue.contains({1}));
}

TEST_CASE("only so many blocked requests are looked past") {
  AdmissionPolicy policy;
  policy.scan_max = 2;
  AdmissionQueue queue(policy);
  queue.push({1}, rank(1), {400, 600, 1});
  queue.push({2}, rank(2), {400, 600, 1});
  queue.push({3}, rank(3), {10, 20, 1});
  CHECK_FALSE(queue.take(sites_with(8, 10), 0));
  queue.remove({1});
  CHECK(queue.take(sites_with(8, 10), 0)->request == RequestId{3});
}

TEST_CASE("a request that nobody alive could run is parked, and says since when") {
  AdmissionQueue queue({});
  queue.push({1}, rank(1), {10, 5000, 1});
  queue.push({2}, rank(2), {10, 20, 1});
  CHECK(queue.take(sites_with(8, 100), 70)->request == RequestId{2});
  CHECK(queue.size() == 1);
  CHECK_FALSE(queue.parked_since_before(70));
  CHECK(queue.parked_since_before(71) == RequestId{1});
  // A new instance that does not help does not start its time again.
  queue.unpark();
  CHECK_FALSE(queue.parked_since_before(1000));
  CHECK_FALSE(queue.take(sites_with(8, 100), 500));
  CHECK(queue.parked_since_before(71) == RequestId{1});
  Sites bigger = sites_with(8, 100);
  PrefillSite prefill;
  prefill.positions_max = 10000;
  prefill.window = 1;
  bigger.put({8, 3}, prefill);
  DecodeSite decode;
  decode.positions_max = 10000;
  decode.slots = 1;
  decode.room = {1, 1000, 0};
  bigger.put({9, 4}, decode);
  CHECK_FALSE(queue.take(bigger, 500));  // still parked
  queue.unpark();
  const auto next = queue.take(bigger, 500);
  REQUIRE(next);
  CHECK(next->source == WorkerKey{8, 3});
  CHECK(next->target == WorkerKey{9, 4});
  CHECK(queue.size() == 0);
}

TEST_CASE("a full prefill window stops the line, big or small") {
  AdmissionQueue queue({});
  Sites sites = sites_with(8, 100);
  PrefillSite full;
  full.positions_max = 1000;
  full.window = 1;
  full.outstanding = 1;
  sites.put(kPrefill, full);
  queue.push({1}, rank(1), {10, 20, 1});
  CHECK_FALSE(queue.take(sites, 0));
  CHECK(queue.size() == 1);
}
