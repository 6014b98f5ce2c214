#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// The C++ client of Baton over ZeroMQ. Needs neither MPI, Boost nor CUDA; links libzmq.
//
//   auto client = baton::client::Client::connect({.endpoint = "tcp://127.0.0.1:5757"});
//   if (!client.value) { report(client.error.text); }
//   auto stream = client.value->submit({.messages = {{"user", "Hello!"}}});
//   while (auto part = stream.next()) std::cout << part->text << std::flush;
//   const auto& result = stream.result();
//
//   auto group = client.value->submit_all(requests);      // thousands of them
//   while (auto finished = group.value->next()) store(finished->id, finished->result);
//
// All functions are thread-safe unless they say otherwise. Times are milliseconds.

namespace baton::client {

// What went wrong. `code` is one of the protocol's error codes ("busy", "invalid_argument", ...).
struct Error {
  std::string code;
  std::string text;
  int64_t retry_after_ms = 0;  // 0 = repeating it will not help
};

struct Message {
  std::string role;  // system, developer, user, assistant, tool
  std::string content;
};

// Give exactly one of `messages`, `text`, `ids`.
struct Request {
  std::vector<Message> messages = {};
  std::string text = {};
  std::vector<int32_t> ids = {};

  std::optional<uint32_t> max_tokens = {};  // unset: the rest of the context; 0: score the prompt
  uint32_t min_tokens = 0;
  float temperature = 0;  // 0 = greedy
  int32_t top_k = 0;      // 0 = off
  float top_p = 1;
  float min_p = 0;
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  std::vector<std::pair<int32_t, float>> logit_bias = {};
  std::optional<uint64_t> seed = {};
  int32_t top_logprobs = -1;     // -1 none, 0 of the chosen tokens, k also of the k best
  int32_t prompt_logprobs = -1;  // likewise for the prompt
  std::vector<std::string> stop = {};
  std::vector<int32_t> stop_ids = {};
  bool ignore_eos = false;
  int32_t priority = 0;
  int64_t deadline_ms = 0;           // from arrival at the server; 0 = none
  std::string idempotency_key = {};  // same key and content: the same job, run once
  uint32_t n = 1;          // choices: answers from one prompt; choice c is the same whatever n is
  std::string id = {};     // of one among many: unique in its group; without one it gets its number
  std::string group = {};  // your name for requests that belong together
  bool stream = true;      // false: no parts, only the result
};

struct TopToken {
  int32_t id = 0;
  float logprob = 0;
};

// A stretch of the answer. `text` never splits a character; it may be empty while one is under way.
struct Part {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;  // natural logarithms, if asked for
  std::vector<std::vector<TopToken>> top;
  std::string text;
  uint32_t choice = 0;
};

// A choice's tokens from `from_token` on come from this version of the weights, up to the choice's
// next span.
struct WeightsSpan {
  uint64_t version = 0;
  uint32_t from_token = 0;
  uint32_t choice = 0;
};

struct Usage {
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t completion_tokens = 0;
  uint64_t kv_bytes = 0;  // handed from prefill to decode
  int64_t queue_us = 0;
  int64_t prefill_us = 0;
  int64_t transfer_us = 0;  // hand-off time
  int64_t ttft_us = 0;      // arrival at the gateway to first token sent
  int64_t total_us = 0;
  uint32_t prefill_rank = 0;
  uint32_t decode_rank = 0;
  uint32_t attempts = 0;  // retries after lost workers
  uint64_t weights_version = 0;
  bool exact = true;
  std::vector<WeightsSpan> weights;
  uint64_t prompt_weights = 0;  // of the prompt's log-probabilities; 0: none asked
};

struct Choice {
  std::vector<int32_t> ids;  // the whole completion, the ending token included
  std::vector<float> logprobs;
  std::vector<std::vector<TopToken>> top;
  std::string text;
  std::string finish;  // stop, length, cancelled, error
};

// The first choice is the result itself, so that a request of one choice reads result.text.
struct Result : Choice {
  std::vector<int32_t> prompt_ids;
  std::vector<float> prompt_logprobs;  // of prompt_ids[1..]
  std::vector<std::vector<TopToken>> prompt_top;
  std::vector<Choice> more;  // choices 1..
  Usage usage;

  size_t choices() const { return 1 + more.size(); }
  const Choice& choice(size_t number) const { return number == 0 ? *this : more.at(number - 1); }
};

struct Model {
  std::string name;
  std::string version;
  uint32_t vocabulary = 0;
  uint32_t context = 0;
  std::vector<int32_t> eos_ids;
};

struct Count {
  std::string name;
  uint64_t value = 0;
};

struct Worker {
  uint32_t rank = 0;
  std::string role;
  std::string host;
  std::string cores;
  bool alive = true;
  uint32_t slots = 0;
  uint32_t slots_free = 0;
  uint32_t blocks = 0;
  uint32_t blocks_free = 0;
  uint32_t blocks_quarantined = 0;
  uint32_t queued = 0;
  uint32_t running = 0;
  uint64_t steps = 0;
  int64_t beat_age_us = 0;
  std::vector<Count> counters;    // since its life began: pack fill, idle slots, overshoot, ...
  uint32_t blocks_cached = 0;     // by prefix caches; those that nobody uses count as free
  std::vector<uint64_t> weights;  // versions that requests may run on there
  std::string weights_trouble;    // why it has not the current one
  uint32_t tensor_parallel = 1;   // of its instance, whose first rank is `rank`
  uint32_t pipeline_parallel = 1;
  uint32_t block_tokens = 16;
  std::string kv_dtype;
};

// Other weights for the model that is served.
struct WeightsUpdate {
  std::string path = {};           // absolute, the same on every host with a worker
  std::string sha256 = {};         // of the file; empty: not compared
  uint64_t version = 0;            // greater than the served one; 0: the next
  std::string policy = "finish";   // for running requests: finish, continue or abort
  bool dry_run = false;            // prepare everywhere, change nothing
  bool wait_retired = false;       // return when the old weights are gone, not when committed
  int64_t prepare_timeout_ms = 0;  // 0: the server's
};

// How far an update is, or how it ended.
struct UpdateProgress {
  std::string phase;  // preparing, committing, retiring, idle (over), failed
  uint64_t version = 0;
  uint64_t digest = 0;  // of the weights' bytes
  uint32_t workers = 0;
  uint32_t workers_done = 0;
  uint64_t old_requests = 0;  // still running on the old weights
  int64_t prepare_us = 0;
};

struct Status {
  std::string model;
  std::string version;
  bool ready = false;
  int64_t uptime_us = 0;
  uint32_t clients = 0;
  uint32_t streams = 0;
  std::vector<Worker> workers;
  std::vector<Count> requests;   // per ledger state
  std::vector<Count> leases;     // per lease state
  std::vector<Count> counters;   // since start
  uint64_t weights_version = 0;  // that new requests run on
  UpdateProgress update;         // the one that runs, or ran last
  std::string update_error;      // why it failed
  uint32_t kv_layer_groups = 1;  // KV is handed over in so many
  bool kv_digests = true;        // and digested before and after its way
};

struct Options {
  std::string endpoint = "tcp://127.0.0.1:5757";
  std::string name = "baton-client-c++";  // for the server's log
  int64_t connect_timeout_ms = 5000;
  int64_t reconnect_timeout_ms = 30000;  // how long a job waits for a lost connection
};

// A value, or an error when it is empty.
template <class T>
struct Outcome {
  std::optional<T> value;
  Error error;
};

class Connection;

// One job under way. Copyable handle; the job goes on when all copies are gone unless cancelled.
class Stream {
 public:
  // Waits for the next part. Empty at the end: then result() or error() tells how it ended. With a
  // timeout, an empty part means that nothing has come yet: ask finished().
  std::optional<Part> next(int64_t timeout_ms = -1);
  bool finished() const;
  bool failed() const;  // after the end: there is an error instead of a result
  // Wait for the end.
  const Result& result();
  const Error& error();
  uint32_t prompt_tokens() const;  // known once accepted, else 0
  // Idempotent; the stream then ends with an error of code "cancelled" or with what was there.
  void cancel();

 private:
  friend class Client;
  struct Job;
  friend class Connection;
  explicit Stream(std::shared_ptr<Job> job, std::shared_ptr<Connection> connection);
  std::shared_ptr<Job> job_;                // shared with the connection's thread
  std::shared_ptr<Connection> connection_;  // shared with the client and its other streams
};

struct GroupOptions {
  size_t outstanding = 64;  // requests under way at once
  bool ordered = false;     // results in the order of the requests, not as they finish
};

// How one request of a group ended: with a result, or with an error.
struct Finished {
  std::string id;
  size_t index = 0;  // its place in the group
  Result result;
  Error error;
  bool failed = false;
};

// A job of many requests. Those that the server refuses as busy are sent again when it says. What
// is under way is cancelled with the group. Movable; used by one thread at a time.
class Group {
 public:
  ~Group();
  Group(Group&& other) noexcept;
  Group& operator=(Group&& other) noexcept;

  // Waits for the next one that ends. Empty when all have.
  std::optional<Finished> next();
  size_t size() const;

 private:
  friend class Client;
  struct State;
  explicit Group(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// A session with one server. Reconnects by itself; jobs continue where they were.
class Client {
 public:
  // Waits until the server has answered, or fails with a sentence.
  static Outcome<Client> connect(const Options& options);

  const Model& model() const;
  Stream submit(const Request& request);
  // Fails before anything is sent when two requests have the same id.
  Outcome<Group> submit_all(std::vector<Request> requests, const GroupOptions& options = {});
  // Waits for the answer.
  Outcome<Status> status(int64_t timeout_ms = 5000);
  // Waits until the new weights are served (see WeightsUpdate::wait_retired), or fails with why
  // nothing has changed. `progress` is called meanwhile, on the calling thread. After `timeout_ms`
  // (-1: never) it gives up waiting; the update goes on.
  using Progress = std::function<void(const UpdateProgress&)>;
  Outcome<UpdateProgress> update_weights(const WeightsUpdate& update, const Progress& progress = {},
                                         int64_t timeout_ms = -1);

 private:
  explicit Client(std::shared_ptr<Connection> connection);
  std::shared_ptr<Connection> connection_;  // shared with the streams
};

}  // namespace baton::client
