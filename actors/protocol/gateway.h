#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "actors/protocol/common.h"
#include "actors/protocol/scheduler.h"

// What the gateway hears from workers, and the whole protocol of clients. A client is addressed as
// (kClientRank, session, incarnation); a listener in launch/ turns its socket into mail.

namespace baton {

// Prefill or decode -> gateway. Entries of many requests travel together, once per engine step.
struct Tokens {
  static constexpr MsgKind kind = MsgKind::tokens;
  std::vector<TokenEntry> entries;
  BATON_FIELDS(entries)
};

// Gateway -> decode: tokens below `next` have reached the client's side; a slot that is more than
// Limits::stream_ahead_max beyond the last one acknowledged pauses. `ended`: the choice has ended
// with them (a stop string, which only the gateway sees), though others of its request go on.
struct TokensAck {
  static constexpr MsgKind kind = MsgKind::tokens_ack;
  uint32_t choice = 0;
  uint32_t next = 0;
  bool ended = false;
  BATON_FIELDS(choice, next, ended)
};

// Gateway -> decode: entries from `next` on are missing (another sender's did not arrive).
struct Resend {
  static constexpr MsgKind kind = MsgKind::resend;
  uint32_t choice = 0;
  uint32_t next = 0;
  BATON_FIELDS(choice, next)
};

// Prefill -> gateway: log-probabilities of the prompt, where asked for.
struct PromptScores {
  static constexpr MsgKind kind = MsgKind::prompt_scores;
  std::vector<float> logprobs;  // of prompt tokens 1..; token 0 has none
  std::vector<std::vector<TokenLogprob>> top;
  BATON_FIELDS(logprobs, top)
};

// ---------------------------------------------------------------- clients

struct ChatMessage {
  std::string role;     // system, developer, user, assistant, tool
  std::string content;  // plain text: never yields a control token
  BATON_FIELDS(role, content)
};

// Client -> gateway: one request. Exactly one of `ids`, `text`, `messages` is given.
struct Submit {
  static constexpr MsgKind kind = MsgKind::submit;
  uint64_t job = 0;             // the client's own number, unique within its session
  std::string idempotency_key;  // same key, same content: the same job
  std::vector<TokenId> ids;
  std::string text;
  std::vector<ChatMessage> messages;
  uint32_t n = 1;
  uint32_t max_tokens = 0;  // with has_max_tokens; otherwise the rest of the context
  bool has_max_tokens = false;
  uint32_t min_tokens = 0;
  SamplingParams sampling;
  bool has_seed = false;          // false: the gateway mints sampling.seed
  std::vector<std::string> stop;  // stop strings; removed from the text
  std::vector<TokenId> stop_ids;  // beside the model's end-of-sequence ids
  bool ignore_eos = false;
  int32_t priority = 0;
  int64_t deadline_ms = 0;  // from arrival; 0 = none
  std::string tenant;
  bool stream = true;  // false: only ClientDone
  std::string group;   // the client's own name for jobs that belong together; for the log
  BATON_FIELDS(job, idempotency_key, ids, text, messages, n, max_tokens, has_max_tokens, min_tokens,
               sampling, has_seed, stop, stop_ids, ignore_eos, priority, deadline_ms, tenant,
               stream, group)
};

// Client -> gateway: first message of a session, and again after a reconnect. A token names the
// session, so that its jobs go on; an empty one asks for a new session.
struct ClientHello {
  static constexpr MsgKind kind = MsgKind::client_hello;
  std::string session;
  std::string client;  // name and version, for the log
  BATON_FIELDS(session, client)
};

// Gateway -> client: answer to ClientHello, and to ModelQuery.
struct ModelReply {
  static constexpr MsgKind kind = MsgKind::model_reply;
  std::string session;
  std::string model;
  std::string version;  // of Baton
  uint32_t vocabulary = 0;
  uint32_t context_max = 0;
  std::vector<TokenId> eos_ids;
  BATON_FIELDS(session, model, version, vocabulary, context_max, eos_ids)
};

struct Accepted {
  static constexpr MsgKind kind = MsgKind::accepted;
  uint64_t job = 0;
  RequestId request;
  uint32_t prompt_tokens = 0;
  BATON_FIELDS(job, request, prompt_tokens)
};

// The request did not, or does no longer, run: the job's one terminal event if it comes.
struct ClientRefused {
  static constexpr MsgKind kind = MsgKind::client_refused;
  uint64_t job = 0;
  Refusal refusal;
  BATON_FIELDS(job, refusal)
};

// A stretch of a choice's stream: `ids` and their text as far as its characters are complete.
struct ClientTokens {
  static constexpr MsgKind kind = MsgKind::client_tokens;
  uint64_t job = 0;
  uint32_t choice = 0;
  uint32_t seq = 0;  // of ids[0]
  std::vector<TokenId> ids;
  std::vector<float> logprobs;
  std::vector<std::vector<TokenLogprob>> top;
  std::string text;
  BATON_FIELDS(job, choice, seq, ids, logprobs, top, text)
};

struct ChoiceResult {
  std::vector<TokenId> ids;  // all of the completion, the ending token included
  std::vector<float> logprobs;
  std::vector<std::vector<TokenLogprob>> top;
  std::string text;
  Finish finish = Finish::none;
  BATON_FIELDS(ids, logprobs, top, text, finish)
};

// The job's one terminal event when it ran to an end.
struct ClientDone {
  static constexpr MsgKind kind = MsgKind::client_done;
  uint64_t job = 0;
  std::vector<ChoiceResult> choices;
  std::vector<TokenId> prompt_ids;
  std::vector<float> prompt_logprobs;  // of prompt_ids[1..]
  std::vector<std::vector<TokenLogprob>> prompt_top;
  Usage usage;
  int64_t ttft_us = 0;  // arrival at the gateway to first token sent
  int64_t total_us = 0;
  BATON_FIELDS(job, choices, prompt_ids, prompt_logprobs, prompt_top, usage, ttft_us, total_us)
};

// Client -> gateway: send the job's stream again from token `after_seq` on (the number of tokens
// that the client has: 0 = from the start) and its terminal event, as long as they are kept. After
// a reconnect a job's stream stands still until its client fetches it.
struct Fetch {
  static constexpr MsgKind kind = MsgKind::fetch;
  uint64_t job = 0;
  uint32_t after_seq = 0;              // of choice 0
  std::vector<uint32_t> after_more{};  // of the choices behind it; those not named: as after_seq
  BATON_FIELDS(job, after_seq, after_more)
};

// Client -> gateway: tokens below `next` are with the client; a finished job can be forgotten.
struct ClientAck {
  static constexpr MsgKind kind = MsgKind::client_ack;
  uint64_t job = 0;
  uint32_t next = 0;  // of choice 0
  bool done = false;
  std::vector<uint32_t> next_more{};  // of the choices behind it; those not named: nothing new
  BATON_FIELDS(job, next, done, next_more)
};

struct ClientCancel {
  static constexpr MsgKind kind = MsgKind::client_cancel;
  uint64_t job = 0;
  BATON_FIELDS(job)
};

// Both ways, while idle: the other side is there.
struct ClientBeat {
  static constexpr MsgKind kind = MsgKind::client_beat;
  uint64_t seq = 0;
  BATON_FIELDS(seq)
};

// Listener -> gateway: the client's connection has ended.
struct ClientGone {
  static constexpr MsgKind kind = MsgKind::client_gone;
  std::string reason;
  BATON_FIELDS(reason)
};

// Listener -> gateway and gateway -> client: bytes that are not a message of ours.
struct ClientBadFrame {
  static constexpr MsgKind kind = MsgKind::client_bad_frame;
  Refusal refusal;
  BATON_FIELDS(refusal)
};

// Client -> gateway: which model is served? Answered by ModelReply; needs no session.
struct ModelQuery {
  static constexpr MsgKind kind = MsgKind::model_query;
  bool reserved = false;
  BATON_FIELDS(reserved)
};

// Client -> gateway: how is the cluster? Answered by StatusReply; needs no session.
struct StatusQuery {
  static constexpr MsgKind kind = MsgKind::status_query;
  bool reserved = false;
  BATON_FIELDS(reserved)
};

struct StatusReply {
  static constexpr MsgKind kind = MsgKind::status_reply;
  ClusterReply cluster;
  std::string model;
  std::string version;
  uint32_t clients = 0;
  uint32_t streams = 0;
  int64_t uptime_us = 0;
  bool ready = false;
  std::vector<NamedCount> counters;  // of the gateway
  BATON_FIELDS(cluster, model, version, clients, streams, uptime_us, ready, counters)
};

}  // namespace baton
