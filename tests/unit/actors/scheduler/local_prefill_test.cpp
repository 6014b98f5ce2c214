#include "actors/scheduler/local_prefill.h"

#include <doctest/doctest.h>

using namespace baton;

namespace {

using Mode = LocalPrefillPolicy::Mode;

LocalPrefillLoad load(uint64_t ahead, uint32_t sequences = 0, uint64_t bytes = 0) {
  LocalPrefillLoad load;
  load.tokens_ahead = ahead;
  load.sequences = sequences;
  load.kv_bytes_per_token = bytes;
  return load;
}

}  // namespace

TEST_CASE("local prefill off: never, whatever is missing") {
  LocalPrefillLoad nobody = load(1000);
  nobody.prefill_alive = false;
  CHECK(local_tokens_max({Mode::off, 500}, load(1000)) == 0);
  CHECK(local_tokens_max({Mode::off, 500}, nobody) == 0);
}

TEST_CASE(
    "without any prefill instance a decode instance computes every prompt, if it may at all") {
  LocalPrefillLoad nobody = load(0, 31);
  nobody.prefill_alive = false;
  CHECK(local_tokens_max({Mode::fixed, 5}, nobody) == UINT32_MAX);
  CHECK(local_tokens_max({Mode::automatic, 0}, nobody) == UINT32_MAX);
}

TEST_CASE("a fixed number is what was asked for, whatever the load") {
  CHECK(local_tokens_max({Mode::fixed, 40}, load(0, 30)) == 40);
  CHECK(local_tokens_max({Mode::fixed, 40}, load(100000)) == 40);
}

TEST_CASE(
    "automatic: an idle prefill instance keeps its work; a queue there, not one here, sends "
    "prompts over") {
  const LocalPrefillPolicy automatic{Mode::automatic, 0};
  CHECK(local_tokens_max(automatic, load(0)) == 0);
  CHECK(local_tokens_max(automatic, load(100)) == 100);
  CHECK(local_tokens_max(automatic, load(100, 4)) == 50);  // each token here costs twice as much
  CHECK(local_tokens_max(automatic, load(100, 28)) == 12);
  CHECK(local_tokens_max(automatic, load(100000, 4)) == 256);  // bounded, for those that run
  CHECK(local_tokens_max(automatic, load(UINT64_MAX)) == 256);
}

TEST_CASE(
    "automatic: never more for a busier decode side, never less for a longer queue or more "
    "bytes to move") {
  const LocalPrefillPolicy automatic{Mode::automatic, 0};
  for (uint64_t ahead = 0; ahead < 600; ahead += 37) {
    for (uint32_t sequences = 0; sequences < 40; sequences += 3) {
      for (uint64_t bytes = 0; bytes <= (4u << 20); bytes += 512u << 10) {
        const uint32_t here = local_tokens_max(automatic, load(ahead, sequences, bytes));
        CHECK(local_tokens_max(automatic, load(ahead, sequences + 1, bytes)) <= here);
        CHECK(local_tokens_max(automatic, load(ahead + 1, sequences, bytes)) >= here);
        CHECK(local_tokens_max(automatic, load(ahead, sequences, bytes + 1000)) >= here);
        if (ahead == 0) CHECK(here == 0);
      }
    }
  }
}
