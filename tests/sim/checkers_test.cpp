#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "launch/sim/sim_main.h"
#include "launch/sim/sim_options.h"

namespace baton {
namespace {

constexpr uint64_t kSeedsMax = 150;

// Who must find a broken variant.
struct Expectation {
  Sabotage sabotage;
  std::vector<std::string> checkers;  // any of them
  bool calm = false;
};

const std::vector<Expectation>& expectations() {
  static const std::vector<Expectation> all = {
      {Sabotage::end_receives_early, {"transfer"}}, {Sabotage::skip_quarantine, {"transfer"}},
      {Sabotage::corrupt_after_digest, {"stream"}}, {Sabotage::accept_stale_epoch, {"epoch"}},
      {Sabotage::swap_tokens, {"stream"}},          {Sabotage::wrong_logprob, {"stream"}},
      {Sabotage::lose_client_tokens, {"stream"}},   {Sabotage::lose_terminal, {"terminal"}},
      {Sabotage::repeat_terminal, {"terminal"}},    {Sabotage::garble_text, {"stream"}},
      {Sabotage::double_lease, {"lease"}},          {Sabotage::lose_slot_freed, {"lease", "rest"}},
      {Sabotage::lose_kv_sent, {"rest"}},           {Sabotage::ignore_cancel, {"cancel"}, true},
      {Sabotage::stop_decoding, {"liveness"}},      {Sabotage::overfill_queue, {"limit"}},
      {Sabotage::write_shared, {"lease"}},          {Sabotage::free_twice, {"lease"}},
      {Sabotage::mix_choices, {"stream"}},
  };
  return all;
}

SimReport run(uint64_t seed, const Expectation& expectation, Sabotage sabotage) {
  name_seed_on_abort(seed);
  SimOptions options;
  options.seed = seed;
  options.calm = expectation.calm;
  options.sabotage = sabotage;
  return run_seed(options);
}

bool found_by(const SimReport& report, const std::vector<std::string>& checkers) {
  return std::any_of(report.findings.begin(), report.findings.end(), [&](const Finding& finding) {
    return std::find(checkers.begin(), checkers.end(), finding.checker) != checkers.end();
  });
}

TEST_CASE("every broken variant has a checker that must find it") {
  for (Sabotage sabotage : all_sabotages()) {
    const auto named = [&](const Expectation& e) { return e.sabotage == sabotage; };
    CHECK_MESSAGE(std::count_if(expectations().begin(), expectations().end(), named) == 1,
                  sabotage_name(sabotage));
  }
}

TEST_CASE("each checker finds the defect it is there for, and nothing in the same run without it") {
  for (const Expectation& expectation : expectations()) {
    uint64_t seed = 1;
    while (seed <= kSeedsMax &&
           !found_by(run(seed, expectation, expectation.sabotage), expectation.checkers)) {
      ++seed;
    }
    const std::string name = sabotage_name(expectation.sabotage);
    CHECK_MESSAGE(seed <= kSeedsMax, name << " was not found in any seed");
    if (seed > kSeedsMax) continue;
    CHECK_MESSAGE(run(seed, expectation, Sabotage::none).ok(), name << ", seed " << seed);
    MESSAGE(name << " is found by " << expectation.checkers.front() << " at seed " << seed);
  }
}

}  // namespace
}  // namespace baton
