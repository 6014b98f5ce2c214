#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "actors/gateway/gateway.h"
#include "runtime/base/check.h"

// From Submit to Admitted, and every way in which a request ends.

namespace baton {
namespace {

std::vector<TokenId> stop_ids_of(const Submit& submit, const ModelText& text) {
  std::set<TokenId> ids(submit.stop_ids.begin(), submit.stop_ids.end());
  if (!submit.ignore_eos) ids.insert(text.eos_ids.begin(), text.eos_ids.end());
  return {ids.begin(), ids.end()};
}

// Leaves the prompt, which may be megabytes, where it is.
Submit without_prompt(Submit& submit) {
  std::vector<TokenId> ids = std::move(submit.ids);
  std::string text = std::move(submit.text);
  std::vector<ChatMessage> messages = std::move(submit.messages);
  submit.ids.clear();
  submit.text.clear();
  submit.messages.clear();
  Submit copy = submit;
  submit.ids = std::move(ids);
  submit.text = std::move(text);
  submit.messages = std::move(messages);
  return copy;
}

// What has all its tokens runs to its end by itself.
bool can_end_early(const RequestRow& row) {
  return row.phase != RequestPhase::closing;
}

Micros remaining(const RequestRow& row, Micros now) {
  return row.deadline_at == kNever ? kNever : std::max<Micros>(row.deadline_at - now, 0);
}

}  // namespace

RequestRow* Gateway::find(RequestId id) {
  const auto found = rows_.find(id);
  return found == rows_.end() ? nullptr : &found->second;
}

Refusal Gateway::busy(const std::string& text) const {
  return {ErrorCode::busy, text + "; try again later",
          options_.limits.retry_after_us / kMillisecond};
}

void Gateway::refuse(Context& context, const Envelope& from, uint64_t job, Refusal refusal) {
  ++counters_.refused;
  context.send(from.from, ClientRefused{job, std::move(refusal)},
               {.correlation = from.correlation});
}

// ---------------------------------------------------------------- arrival

void Gateway::on(Context& context, const Envelope& from, Submit& submit) {
  Session* session = session_of(from, submit.job, context);
  if (session == nullptr) return;
  ++counters_.submitted;
  if (repeats(context, from, *session, submit)) return;
  std::optional<Refusal> fault = find_limit(*session);
  if (!fault) fault = check_submit(submit, rules_);
  if (fault) return refuse(context, from, submit.job, std::move(*fault));
  if (joins(context, from, *session, submit)) return;
  if (live_ >= options_.limits.live_requests_max) {
    return refuse(
        context, from, submit.job,
        busy(fmt::format("{} requests are under way, which is the most this server takes", live_)));
  }
  RequestRow& row = make_row(context, from, submit);
  attach(context, from, *session, row, submit);
  if (!submit.ids.empty()) return admit(context, row, std::move(submit.ids));
  Mail answer;
  answer.envelope.kind = Prepared::kind;
  answer.envelope.from = answer.envelope.to = context.self();
  answer.envelope.request = row.id;
  const bool taken = options_.workers->run(
      [answer, text = options_.text, submit = std::move(submit), rules = rules_]() mutable {
        answer.body = encode_body(prepare(*text, submit, rules));
        return answer;
      });
  if (!taken) conclude(context, row, busy("too many prompts wait to be tokenised"));
}

// A client that does not know whether its Submit arrived sends it again under the same number.
bool Gateway::repeats(Context& context, const Envelope& from, Session& session,
                      const Submit& submit) {
  const auto known = session.jobs.find(submit.job);
  if (known == session.jobs.end()) return false;
  RequestRow* row = find(known->second.request);
  CHECK(row != nullptr);
  if (row->content != fingerprint_of(submit)) {
    refuse(context, from, submit.job,
           {ErrorCode::conflict,
            fmt::format("job {} of this session is another request, which goes on; expected a "
                        "number that is not in use",
                        submit.job),
            0});
    return true;
  }
  ++counters_.attached;
  known->second.correlation = from.correlation;
  known->second.stream = submit.stream;
  resume(context, *row, session, submit.job, {});
  pump(context, session);
  return true;
}

// A submit with a known idempotency key becomes one more client of the request that has it.
bool Gateway::joins(Context& context, const Envelope& from, Session& session,
                    const Submit& submit) {
  if (submit.idempotency_key.empty()) return false;
  const auto known = keys_.find(submit.tenant, submit.idempotency_key);
  if (!known) return false;
  RequestRow* row = find(*known);
  CHECK(row != nullptr);
  if (row->content != fingerprint_of(submit)) {
    refuse(context, from, submit.job,
           {ErrorCode::conflict,
            fmt::format("idempotency_key {} stands for a request with other content; expected the "
                        "same content, or another key",
                        quoted_echo(submit.idempotency_key)),
            0});
    return true;
  }
  ++counters_.attached;
  attach(context, from, session, *row, submit);
  resume(context, *row, session, submit.job, {});
  return true;
}

std::optional<Refusal> Gateway::find_limit(const Session& session) const {
  if (session.live < options_.limits.requests_per_client_max) return std::nullopt;
  return busy(fmt::format("{} requests of this client are under way, which is the most it may have",
                          session.live));
}

RequestRow& Gateway::make_row(Context& context, const Envelope& from, Submit& submit) {
  const RequestId id{next_request_++};
  RequestRow& row = rows_[id];
  ++live_;
  row.id = id;
  row.content = fingerprint_of(submit);
  if (!submit.has_seed) submit.sampling.seed = context.random();
  row.submit = without_prompt(submit);
  if (!submit.idempotency_key.empty()) keys_.add(submit.tenant, submit.idempotency_key, id);
  Micros budget = submit.deadline_ms > 0 ? submit.deadline_ms * kMillisecond : kNever;
  budget = std::min(budget, from.remaining_us);
  if (budget != kNever) {
    row.deadline_at = context.now() + std::max<Micros>(budget, 0);
    row.deadline_timer = context.set_timer(std::max<Micros>(budget, 0), kDeadline, id.value);
  }
  return row;
}

void Gateway::attach(Context& context, const Envelope& from, Session& session, RequestRow& row,
                     const Submit& submit) {
  Job job;
  job.request = row.id;
  job.correlation = from.correlation;
  job.stream = submit.stream;
  job.arrived = context.now();
  job.cursors.resize(submit.n);
  sessions_.add_job(session, submit.job, std::move(job));
  row.waiters.push_back({session.id, submit.job});
  if (row.live()) ++session.live;
}

// ---------------------------------------------------------------- admission

void Gateway::on(Context& context, const Envelope& from, Prepared& prepared) {
  RequestRow* row = find(from.request);
  // Cancelled meanwhile, or asked for by an earlier life of this actor.
  if (fenced_client(from) || row == nullptr || row->phase != RequestPhase::preparing) return;
  if (prepared.refused) return conclude(context, *row, std::move(prepared.refusal));
  admit(context, *row, std::move(prepared.ids));
}

void Gateway::admit(Context& context, RequestRow& row, std::vector<TokenId> ids) {
  const Submit& submit = row.submit;
  row.prompt = std::move(ids);
  row.phase = RequestPhase::admitting;
  Admit admit;
  admit.ids = row.prompt;
  admit.n = submit.n;
  admit.sampling = sampling_of(submit);
  admit.stops.max_tokens = max_tokens_of(submit, row.prompt.size(), rules_);
  admit.stops.min_tokens = submit.min_tokens;
  admit.stops.stop_ids = stop_ids_of(submit, *options_.text);
  admit.priority = submit.priority;
  admit.tenant = submit.tenant;
  StreamOptions stream;
  stream.tokenizer = &options_.text->tokenizer;
  stream.stop = submit.stop;
  stream.choices = submit.n;
  stream.min_tokens = submit.min_tokens;
  stream.held_max = 2 * options_.limits.stream_ahead_max + ack_every_;
  stream.logprobs = submit.sampling.top_logprobs >= 0;
  stream.top = submit.sampling.top_logprobs > 0;
  row.stream.emplace(stream);
  row.acked.assign(submit.n, 0);
  row.scores_wanted = admit.sampling.prompt_logprobs >= 0 && row.prompt.size() > 1;
  context.send(options_.scheduler, admit,
               {.request = row.id, .remaining_us = remaining(row, context.now())});
}

void Gateway::on(Context& context, const Envelope& from, Admitted&) {
  RequestRow* row = find(from.request);
  if (fenced_client(from) || row == nullptr || !row->live() || !row->stream) return;
  const bool first = row->phase == RequestPhase::admitting;
  if (first) row->phase = RequestPhase::running;
  const bool newer = row->stream->advance(from.epoch);
  if (!first && !newer) {
    ++counters_.fenced;
    return;
  }
  for (const JobKey& key : row->waiters) {
    const Session* session = sessions_.find(key.session);
    if (first) accept(context, *session, key.job, session->jobs.at(key.job), *row);
  }
  after_commit(context, *row);
}

void Gateway::on(Context& context, const Envelope& from, AdmitRefused& refused) {
  RequestRow* row = find(from.request);
  if (fenced_client(from) || row == nullptr || row->phase != RequestPhase::admitting) return;
  conclude(context, *row, std::move(refused.refusal));
}

// ---------------------------------------------------------------- ends

void Gateway::on(Context& context, const Envelope& from, Failed& failed) {
  RequestRow* row = find(from.request);
  if (fenced_client(from) || row == nullptr || !row->live() || !row->stream) return;
  // All tokens are here: the client gets its result whatever became of the bookkeeping.
  if (row->phase == RequestPhase::closing && (!row->scores_wanted || row->scores)) {
    return finish(context, *row, row->usage);
  }
  conclude(context, *row, std::move(failed.refusal));
}

void Gateway::on(Context& context, const Envelope& from, ClientCancel& cancel) {
  Session* session = session_of(from, cancel.job, context);
  if (session == nullptr) return;
  const auto known = session->jobs.find(cancel.job);
  if (known == session->jobs.end()) return;
  Job& job = known->second;
  if (const RequestRow* row = find(job.request); row->live() && can_end_early(*row)) {
    job.must_fetch = false;  // whatever of the stream it does not have yet is not wanted any more
    job.stream = false;
  }
  drop_job(context, *session, cancel.job, {ErrorCode::cancelled, "cancelled by the client", 0});
  pump(context, *session);
}

void Gateway::drop_job(Context& context, Session& session, uint64_t number,
                       const Refusal& refusal) {
  Job& job = session.jobs.at(number);
  RequestRow* row = find(job.request);
  CHECK(row != nullptr);
  if (!row->live() || !can_end_early(*row)) return;
  if (row->waiters.size() == 1) return abort(context, *row, refusal);
  if (session.address) {
    context.send(*session.address, ClientRefused{number, refusal},
                 {.request = row->id, .correlation = job.correlation});
  }
  --session.live;
  std::erase(row->waiters, JobKey{session.id, number});
  sessions_.erase_job(session, number);
}

void Gateway::abort(Context& context, RequestRow& row, Refusal refusal) {
  if (row.phase != RequestPhase::preparing) {
    context.send(options_.scheduler, Cancel{refusal.code},
                 {.request = row.id, .epoch = row.epoch()});
  }
  conclude(context, row, std::move(refusal));
}

void Gateway::conclude(Context& context, RequestRow& row, std::optional<Refusal> refusal) {
  CHECK(row.live());
  if (!refusal) {
    ++counters_.done;
  } else if (refusal->code == ErrorCode::cancelled) {
    ++counters_.cancelled;
  } else if (row.phase == RequestPhase::preparing || row.phase == RequestPhase::admitting) {
    ++counters_.refused;
  } else {
    ++counters_.failed;
  }
  row.refusal = std::move(refusal);
  row.phase = RequestPhase::finished;
  row.ended_at = context.now();
  --live_;
  for (TimerId* timer : {&row.deadline_timer, &row.gap_timer, &row.close_timer}) {
    stop_timer(context, *timer);
  }
  // A key whose request has no result is free: a client that tries again is computed again.
  if (row.refusal && !row.submit.idempotency_key.empty()) {
    keys_.remove(row.submit.tenant, row.submit.idempotency_key, row.id);
  }
  for (const JobKey& key : row.waiters) --sessions_.find(key.session)->live;
  deliver_all(context, row);
  keep(context, row);
}

void Gateway::on(Context& context, const Envelope& from, Undeliverable& lost) {
  if (fenced_client(from)) return;
  ++counters_.undeliverable;
  RequestRow* row = find(from.request);
  if (row == nullptr || row->phase != RequestPhase::admitting) return;
  if (lost.message_kind != static_cast<uint16_t>(MsgKind::admit)) return;
  if (lost.full) return conclude(context, *row, busy("the scheduler's mailbox is full"));
  conclude(context, *row,
           Refusal{ErrorCode::unavailable, "the scheduler does not answer; try again later",
                   options_.limits.retry_after_us / kMillisecond});
}

// A scheduler that starts over knows nothing of what it had admitted: what has all its tokens is
// delivered, the rest is refused so that clients can submit it again.
void Gateway::on(Context& context, const Envelope& from, ActorDown& down) {
  if (fenced_client(from) || down.actor.rank != options_.scheduler.rank ||
      down.actor.slot != options_.scheduler.slot) {
    return;
  }
  std::vector<RequestId> ids;
  for (const auto& [id, row] : rows_) {
    if (row.live() && row.phase != RequestPhase::preparing) ids.push_back(id);
  }
  for (const RequestId id : ids) {
    RequestRow& row = rows_.at(id);
    if (row.phase == RequestPhase::closing && (!row.scores_wanted || row.scores)) {
      finish(context, row, row.usage);
      continue;
    }
    conclude(context, row,
             Refusal{ErrorCode::unavailable,
                     "the scheduler had to start over and no longer knows this request; submit it "
                     "again",
                     options_.limits.retry_after_us / kMillisecond});
  }
}

}  // namespace baton
