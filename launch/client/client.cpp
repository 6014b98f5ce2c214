#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "launch/client/connection.h"

namespace baton::client {
namespace {

Submit submit_of(const Request& request) {
  Submit s;
  s.idempotency_key = request.idempotency_key;
  s.ids = request.ids;
  s.text = request.text;
  for (const Message& m : request.messages) s.messages.push_back({m.role, m.content});
  s.has_max_tokens = request.max_tokens.has_value();
  s.max_tokens = request.max_tokens.value_or(0);
  s.min_tokens = request.min_tokens;
  s.sampling.temperature = request.temperature;
  s.sampling.top_k = request.top_k;
  s.sampling.top_p = request.top_p;
  s.sampling.min_p = request.min_p;
  s.sampling.repetition_penalty = request.repetition_penalty;
  s.sampling.presence_penalty = request.presence_penalty;
  s.sampling.frequency_penalty = request.frequency_penalty;
  s.sampling.logit_bias = request.logit_bias;
  s.sampling.seed = request.seed.value_or(0);
  s.sampling.top_logprobs = request.top_logprobs;
  s.sampling.prompt_logprobs = request.prompt_logprobs;
  s.has_seed = request.seed.has_value();
  s.stop = request.stop;
  s.stop_ids = request.stop_ids;
  s.ignore_eos = request.ignore_eos;
  s.priority = request.priority;
  s.deadline_ms = request.deadline_ms;
  s.n = request.n;
  s.group = request.group;
  s.stream = request.stream;
  return s;
}

UpdateProgress progress_of(const UpdateReport& report) {
  return {.phase = phase_name(report.phase),
          .version = report.version,
          .digest = report.digest,
          .workers = report.workers,
          .workers_done = report.workers_done,
          .old_requests = report.old_requests,
          .prepare_us = report.prepare_us};
}

std::optional<WeightsPolicy> policy_of(const std::string& name) {
  for (const auto policy : {WeightsPolicy::finish, WeightsPolicy::resume, WeightsPolicy::abort}) {
    if (name == policy_name(policy)) return policy;
  }
  return std::nullopt;
}

// Names one ask among all that any client ever makes.
std::string mint_token() {
  std::random_device device;
  std::string token;
  for (int i = 0; i < 4; ++i) token += std::to_string(device()) + (i < 3 ? "-" : "");
  return token;
}

void append(std::vector<Count>& target, const std::vector<NamedCount>& source) {
  for (const NamedCount& c : source) target.push_back({c.name, c.value});
}

Worker worker_of(const WorkerStatus& w) {
  Worker worker{.rank = w.rank,
                .role = role_name(w.role),
                .host = w.host,
                .cores = w.cores,
                .alive = w.alive,
                .slots = w.capacity.slots,
                .slots_free = w.slots_free,
                .blocks = w.capacity.blocks,
                .blocks_free = w.blocks_free,
                .blocks_quarantined = w.blocks_quarantined,
                .queued = w.queued,
                .running = w.running,
                .steps = w.steps,
                .beat_age_us = w.beat_age_us,
                .counters = {},
                .blocks_cached = w.blocks_cached,
                .weights = w.weights,
                .weights_trouble = w.weights_trouble,
                .tensor_parallel = w.tensor_parallel,
                .pipeline_parallel = w.pipeline_parallel,
                .block_tokens = w.block_tokens,
                .kv_dtype = dtype_name(w.kv_dtype)};
  append(worker.counters, w.counters);
  return worker;
}

}  // namespace

Stream::Stream(std::shared_ptr<Job> job, std::shared_ptr<Connection> connection)
    : job_(std::move(job)), connection_(std::move(connection)) {}

std::optional<Part> Stream::next(int64_t timeout_ms) {
  std::unique_lock lock(job_->mutex);
  const auto something = [this] { return !job_->parts.empty() || job_->finished; };
  if (timeout_ms < 0) {
    job_->changed.wait(lock, something);
  } else {
    job_->changed.wait_for(lock, std::chrono::milliseconds(timeout_ms), something);
  }
  if (job_->parts.empty()) return std::nullopt;
  Part part = std::move(job_->parts.front());
  job_->parts.pop_front();
  return part;
}

bool Stream::finished() const {
  const std::lock_guard lock(job_->mutex);
  return job_->finished && job_->parts.empty();
}

bool Stream::failed() const {
  const std::lock_guard lock(job_->mutex);
  return job_->finished && job_->failed;
}

const Result& Stream::result() {
  std::unique_lock lock(job_->mutex);
  job_->changed.wait(lock, [this] { return job_->finished; });
  return job_->result;
}

const Error& Stream::error() {
  std::unique_lock lock(job_->mutex);
  job_->changed.wait(lock, [this] { return job_->finished; });
  return job_->error;
}

uint32_t Stream::prompt_tokens() const {
  const std::lock_guard lock(job_->mutex);
  return job_->prompt_tokens;
}

void Stream::cancel() {
  connection_->cancel(job_->submit.job);
}

Client::Client(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}

Outcome<Client> Client::connect(const Options& options) {
  auto connection = std::make_shared<Connection>(options);
  Error error;
  if (!connection->wait_ready(error)) return {std::nullopt, error};
  return {Client(std::move(connection)), {}};
}

const Model& Client::model() const {
  return connection_->model();
}

Stream Client::submit(const Request& request) {
  auto job = std::make_shared<Stream::Job>();
  job->submit = submit_of(request);
  job->progress.resize(std::max(request.n, 1u));
  connection_->submit(job);
  return Stream(std::move(job), connection_);
}

Outcome<Status> Client::status(int64_t timeout_ms) {
  StatusReply reply;
  if (!connection_->status(reply, timeout_ms)) {
    return {std::nullopt,
            {"unavailable", "no status within " + std::to_string(timeout_ms) + " ms", 1000}};
  }
  Status status;
  status.model = reply.model;
  status.version = reply.version;
  status.ready = reply.ready;
  status.uptime_us = reply.uptime_us;
  status.clients = reply.clients;
  status.streams = reply.streams;
  for (const WorkerStatus& w : reply.cluster.workers) status.workers.push_back(worker_of(w));
  append(status.requests, reply.cluster.requests);
  append(status.leases, reply.cluster.leases);
  append(status.counters, reply.cluster.counters);
  append(status.counters, reply.counters);
  status.weights_version = reply.cluster.weights_version;
  status.update = progress_of(reply.cluster.update);
  status.update_error = reply.cluster.update.refusal.text;
  status.kv_layer_groups = reply.cluster.kv_layer_groups;
  status.kv_digests = reply.cluster.kv_digests;
  return {std::move(status), {}};
}

Outcome<UpdateProgress> Client::update_weights(const WeightsUpdate& update,
                                               const Progress& progress, int64_t timeout_ms) {
  const std::optional<WeightsPolicy> policy = policy_of(update.policy);
  if (!policy) {
    return {std::nullopt,
            {"invalid_argument",
             "the policy is '" + update.policy + "'; expected finish, continue or abort", 0}};
  }
  UpdateWeights ask;
  ask.token = mint_token();
  ask.source = {update.path, update.sha256};
  ask.version = update.version;
  ask.policy = *policy;
  ask.dry_run = update.dry_run;
  ask.wait_retired = update.wait_retired;
  ask.timeout_ms = update.prepare_timeout_ms;
  const uint64_t number = connection_->begin_update(ask);
  const auto start = std::chrono::steady_clock::now();
  Outcome<UpdateProgress> outcome;
  for (;;) {
    const auto passed = std::chrono::duration_cast<std::chrono::milliseconds>(
                            std::chrono::steady_clock::now() - start)
                            .count();
    const int64_t left = timeout_ms < 0 ? -1 : std::max<int64_t>(timeout_ms - passed, 0);
    const std::optional<UpdateReport> report =
        connection_->next_report(number, left, outcome.error);
    if (!report) break;
    if (report->last && report->phase == UpdatePhase::failed) {
      const Refusal& refusal = report->refusal;
      outcome.error = {error_name(refusal.code), refusal.text, refusal.retry_after_ms};
      break;
    }
    if (report->last) {
      outcome.value = progress_of(*report);
      break;
    }
    if (progress) progress(progress_of(*report));
  }
  connection_->end_update(number);
  return outcome;
}

}  // namespace baton::client
