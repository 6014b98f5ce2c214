#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/time.h"

namespace baton {

// Every bound of the runtime in one place: queues, pools, batches, retries, messages, times.
// What exceeds one is refused with a sentence, never dropped in silence.
struct Limits {
  // Messages
  size_t message_bytes_max = size_t{64} << 20;  // one control or client message
  size_t array_items_max = size_t{1} << 20;     // of one msgpack array
  size_t msgpack_depth_max = 16;
  size_t mailbox_work_max = 8192;             // work lane of one actor
  size_t mailbox_hard_max = size_t{1} << 20;  // either lane, mail that is never refused included
  size_t link_unacked_max = 4096;             // messages kept for resending, per peer
  size_t link_unacked_bytes_max = size_t{64} << 20;
  size_t outbox_max = 8192;  // messages queued for one socket

  // Admission
  size_t queued_requests_max = 1024;      // QUEUED requests of the scheduler
  size_t live_requests_max = 16384;       // rows of the request ledger that are not terminal
  size_t requests_per_client_max = 4096;  // live requests of one client session
  size_t clients_max = 1024;
  size_t prefill_window = 8;                   // reservations per prefill instance ahead of it
  size_t prompt_bytes_max = size_t{10} << 20;  // text of one prompt
  size_t messages_max = 4096;                  // chat messages of one request
  size_t stop_strings_max = 4;
  size_t stop_string_bytes_max = 4096;
  size_t stop_ids_max = 128;
  size_t logit_bias_max = 1024;
  size_t top_logprobs_max = 20;
  size_t choices_max = 128;
  int attempts_max = 3;       // retries after a lost worker
  int worker_deaths_max = 2;  // a request that kills this many is quarantined

  // Batches
  size_t decode_slots = 32;          // per decode instance (--max-num-seqs)
  size_t batched_tokens_max = 2048;  // tokens of one engine step
  size_t prompts_per_pack_max = 16;
  Micros pack_age_max_us = 20 * kMillisecond;  // oldest member of a bucket waits at most this

  // Streams
  size_t stream_ahead_max = 256;              // tokens a slot may run ahead of its reader
  size_t stream_bytes_max = size_t{1} << 20;  // unsent bytes of one client's streams
  Micros slow_reader_us = 30 * kSecond;

  // Liveness
  Micros beat_period_us = 500 * kMillisecond;
  int beats_missed_max = 5;
  Micros probe_us = 200 * kMillisecond;         // after a socket's disconnect
  Micros client_grace_us = 500 * kMillisecond;  // a client may reconnect within this
  Micros lease_us = 30 * kSecond;               // a reservation without progress
  Micros stage_us = 60 * kSecond;               // RESERVING, TRANSFER, FREEZING, CLOSING
  Micros retry_after_us = 500 * kMillisecond;
  Micros drain_us = 30 * kSecond;

  // Transfers
  size_t piece_bytes_max = size_t{1} << 19;  // one message of the KV data plane
  size_t kv_layer_groups = 1;                // a transfer is sent in so many groups of layers
  bool kv_digests = true;                    // pieces are digested before and after their way
  size_t quarantined_blocks_max = 4096;      // then the instance restarts

  // Weights
  size_t weight_sets_max = 2;                 // in memory at a time: the one in use and one more
  Micros weights_prepare_us = 600 * kSecond;  // until every worker has read a new set

  // Results kept for a client that comes back (Fetch)
  size_t results_kept_max = 1024;
  size_t results_bytes_max = size_t{256} << 20;
  Micros results_ttl_us = 300 * kSecond;
};

}  // namespace baton
