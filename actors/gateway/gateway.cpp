#include "actors/gateway/gateway.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/base/log.h"

namespace baton {
namespace {

constexpr uint32_t kAckEveryMax = 32;
constexpr size_t kQuestionsMax = 1024;
constexpr size_t kClientNameBytesMax = 256;
constexpr Micros kQuestionTtl = 5 * kSecond;

std::string mint_token(Context& context) {
  const uint64_t high = context.random();
  return fmt::format("{:016x}{:016x}", high, context.random());
}

bool has_worker(const ClusterReply& cluster, Role role) {
  return std::any_of(
      cluster.workers.begin(), cluster.workers.end(),
      [role](const WorkerStatus& worker) { return worker.alive && worker.role == role; });
}

}  // namespace

Gateway::Gateway(GatewayOptions options)
    : options_(std::move(options)),
      rules_{options_.limits, options_.context_max, options_.vocabulary},
      ack_every_(static_cast<uint32_t>(
          std::clamp<size_t>(options_.limits.stream_ahead_max / 4, 1, kAckEveryMax))),
      sessions_(options_.limits) {
  CHECK(options_.text != nullptr);
  CHECK(options_.workers != nullptr);
  CHECK(options_.context_max > 0);
  CHECK(options_.vocabulary > 0);
  CHECK(options_.vocabulary <= options_.text->tokenizer.vocab_size());
}

void Gateway::start(Context& context) {
  started_at_ = context.now();
  // Ids of two lives of a gateway differ: each starts at random, far from the end of the range.
  next_request_ = (context.random() >> 1) + 1;
}

// ---------------------------------------------------------------- sessions

void Gateway::on(Context& context, const Envelope& from, ClientHello& hello) {
  Session* here = sessions_.at(from.from);
  Session* known = hello.session.empty() ? nullptr : sessions_.find(hello.session);
  if (known == nullptr || known != here) {
    if (here != nullptr) disconnect(context, *here);
    if (known != nullptr) {
      stop_timer(context, known->grace_timer);
      sessions_.attach(*known, from.from);
      ++counters_.reconnects;
    } else {
      known = make_session(context, from, hello.client);
      if (known == nullptr) return;
    }
  }
  context.send(from.from, model_reply(known->token), {.correlation = from.correlation});
}

Session* Gateway::make_session(Context& context, const Envelope& from, const std::string& client) {
  if (sessions_.full()) {
    Session* old = sessions_.replaceable();
    if (old == nullptr) {
      refuse(context, from, 0,
             busy(fmt::format("{} clients have a session, which is the most this server takes",
                              sessions_.size())));
      return nullptr;
    }
    while (!old->jobs.empty()) forget_job(context, *old, old->jobs.begin()->first);
    sessions_.erase(old->id);
  }
  if (log_wants(LogLevel::debug)) log_debug("a client says hello: " + quoted_echo(client));
  return &sessions_.open(from.from, mint_token(context), client.substr(0, kClientNameBytesMax));
}

void Gateway::on(Context& context, const Envelope& from, ClientBeat& beat) {
  context.send(from.from, ClientBeat{beat.seq}, {.correlation = from.correlation});
}

void Gateway::on(Context& context, const Envelope& from, ClientGone&) {
  Session* session = sessions_.at(from.from);
  if (session == nullptr) return;  // it moved to another connection, or never said hello
  ++counters_.clients_gone;
  disconnect(context, *session);
}

void Gateway::disconnect(Context& context, Session& session) {
  sessions_.detach(session, context.now());
  stop_timer(context, session.slow_timer);
  stop_timer(context, session.grace_timer);
  session.grace_timer =
      context.set_timer(options_.limits.client_grace_us, kGrace, session.id.value);
}

void Gateway::on_grace_passed(Context& context, SessionId id) {
  Session* session = sessions_.find(id);
  if (session == nullptr || session->address) return;
  session->grace_timer = {};
  std::vector<uint64_t> numbers;
  for (const auto& [number, job] : session->jobs) numbers.push_back(number);
  for (const uint64_t number : numbers) {
    if (!session->jobs.contains(number)) continue;  // forgotten to make room for the one before
    drop_job(context, *session, number,
             {ErrorCode::cancelled,
              fmt::format("the client was gone for more than {} ms",
                          options_.limits.client_grace_us / kMillisecond),
              0});
  }
  session->abandoned = true;
  if (session->jobs.empty()) sessions_.erase(id);
}

void Gateway::on(Context& context, const Envelope& from, ClientBadFrame& frame) {
  if (from.from.rank != kClientRank) return;
  ++counters_.bad_frames;
  context.send(from.from, frame, {.correlation = from.correlation});
}

void Gateway::undecodable(Context& context, const Envelope& from, const Error& error) {
  ++counters_.bad_frames;
  if (from.from.rank != kClientRank) return;
  context.send(from.from, ClientBadFrame{{error.code, error.text, 0}},
               {.correlation = from.correlation});
}

Session* Gateway::session_of(const Envelope& from, uint64_t job, Context& context) {
  Session* session = sessions_.at(from.from);
  if (session == nullptr) {
    refuse(context, from, job,
           {ErrorCode::not_found,
            "this connection has no session; send ClientHello before anything about jobs", 0});
  }
  return session;
}

bool Gateway::fenced_client(const Envelope& from) {
  if (from.from.rank != kClientRank) return false;
  ++counters_.fenced;
  return true;
}

// ---------------------------------------------------------------- questions

ModelReply Gateway::model_reply(const std::string& session) const {
  ModelReply reply;
  reply.session = session;
  reply.model = options_.model;
  reply.version = options_.version;
  reply.vocabulary = static_cast<uint32_t>(options_.vocabulary);
  reply.context_max = options_.context_max;
  reply.eos_ids = options_.text->eos_ids;
  return reply;
}

void Gateway::on(Context& context, const Envelope& from, ModelQuery&) {
  context.send(from.from, model_reply(""), {.correlation = from.correlation});
}

void Gateway::on(Context& context, const Envelope& from, StatusQuery&) {
  while (!questions_.empty() &&
         questions_.begin()->second.asked_at + kQuestionTtl < context.now()) {
    questions_.erase(questions_.begin());
  }
  if (questions_.size() >= kQuestionsMax) {
    refuse(context, from, 0, busy(fmt::format("{} status queries wait", questions_.size())));
    return;
  }
  const uint64_t id = next_question_++;
  questions_[id] = {from.from, from.correlation, context.now()};
  context.send(options_.scheduler, ClusterQuery{}, {.correlation = id});
}

void Gateway::on(Context& context, const Envelope& from, ClusterReply& cluster) {
  const auto question = questions_.find(from.correlation);
  if (fenced_client(from) || question == questions_.end()) return;
  StatusReply reply;
  reply.ready = has_worker(cluster, Role::prefill) && has_worker(cluster, Role::decode);
  reply.cluster = std::move(cluster);
  reply.model = options_.model;
  reply.version = options_.version;
  reply.clients = static_cast<uint32_t>(sessions_.connected());
  reply.streams = static_cast<uint32_t>(live_);
  reply.uptime_us = context.now() - started_at_;
  reply.counters = named_counts();
  context.send(question->second.client, reply, {.correlation = question->second.correlation});
  questions_.erase(question);
}

std::vector<NamedCount> Gateway::named_counts() const {
  const GatewayCounters& c = counters_;
  return {{"submitted", c.submitted},
          {"attached", c.attached},
          {"refused", c.refused},
          {"done", c.done},
          {"failed", c.failed},
          {"cancelled", c.cancelled},
          {"tokens", c.tokens},
          {"tokens_held", c.tokens_held},
          {"tokens_duplicate", c.tokens_duplicate},
          {"tokens_stale", c.tokens_stale},
          {"tokens_late", c.tokens_late},
          {"resends", c.resends},
          {"freezes", c.freezes},
          {"fenced", c.fenced},
          {"bad_frames", c.bad_frames},
          {"reconnects", c.reconnects},
          {"clients_gone", c.clients_gone},
          {"slow_readers", c.slow_readers},
          {"peers_down", c.peers_down},
          {"undeliverable", c.undeliverable},
          {"results_kept", kept_.size()},
          {"results_bytes", kept_bytes_}};
}

void Gateway::on(Context&, const Envelope& from, PeerDown&) {
  // Streams stand still until the scheduler freezes them; nothing to do here.
  if (!fenced_client(from)) ++counters_.peers_down;
}

// ---------------------------------------------------------------- timers

void Gateway::stop_timer(Context& context, TimerId& timer) {
  if (timer.value != 0) context.cancel_timer(timer);
  timer = {};
}

void Gateway::on(Context& context, const Envelope& from, Timer& timer) {
  if (fenced_client(from)) return;
  RequestRow* row = timer.purpose <= kClose ? find(RequestId{timer.key}) : nullptr;
  switch (static_cast<TimerPurpose>(timer.purpose)) {
    case kDeadline:
      if (row == nullptr || !row->live()) return;
      row->deadline_timer = {};
      if (row->phase == RequestPhase::closing) return;
      abort(context, *row,
            {ErrorCode::deadline_exceeded,
             fmt::format("the deadline of {} ms has passed", row->submit.deadline_ms), 0});
      return;
    case kGap:
      if (row != nullptr && row->live()) on_gap_timer(context, *row);
      return;
    case kClose:
      if (row != nullptr && row->live()) on_close_timer(context, *row);
      return;
    case kGrace: on_grace_passed(context, SessionId{timer.key}); return;
    case kSlow: on_slow_timer(context, SessionId{timer.key}); return;
    case kExpire:
      expire_timer_ = {};
      expire(context);
      return;
  }
}

}  // namespace baton
