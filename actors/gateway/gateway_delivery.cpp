#include <fmt/format.h>

#include <algorithm>

#include "actors/gateway/gateway.h"
#include "runtime/base/check.h"

// The clients' side: what each job's client has, may be sent, and can fetch again.

namespace baton {
namespace {

constexpr uint32_t kStretchTokens = 64;  // of one ClientTokens

// About what a stretch takes on the wire.
size_t wire_bytes(const ClientTokens& part) {
  size_t bytes = 64 + part.text.size() + part.ids.size() * 9 + part.logprobs.size() * 5;
  for (const auto& top : part.top) bytes += 3 + top.size() * 15;
  return bytes;
}

}  // namespace

// ---------------------------------------------------------------- sending

void Gateway::accept(Context& context, const Session& session, uint64_t number, const Job& job,
                     const RequestRow& row) {
  if (!session.address || job.must_fetch) return;
  context.send(*session.address, Accepted{number, row.id, static_cast<uint32_t>(row.prompt.size())},
               {.request = row.id, .correlation = job.correlation});
}

void Gateway::deliver_all(Context& context, RequestRow& row) {
  for (const JobKey& key : row.waiters)
    deliver(context, row, *sessions_.find(key.session), key.job);
}

void Gateway::deliver(Context& context, RequestRow& row, Session& session, uint64_t number) {
  Job& job = session.jobs.at(number);
  if (job.told || !session.address) return;
  if (job.stream && row.stream && !send_stream(context, row, session, number)) {
    return stall(context, session, number);
  }
  if (!row.live()) {
    if (job.must_fetch) return stall(context, session, number);
    send_terminal(context, row, session, number, job);
  }
  session.backlog.erase(number);
}

// False: something is left that the client cannot be sent now.
bool Gateway::send_stream(Context& context, const RequestRow& row, Session& session,
                          uint64_t number) {
  Job& job = session.jobs.at(number);
  const Stream& stream = *row.stream;
  for (uint32_t c = 0; c < stream.choices(); ++c) {
    SendCursor& cursor = job.cursors[c];
    while (cursor.next < stream.committed(c) || (stream.finished(c) && !cursor.ended)) {
      if (job.must_fetch || sessions_.blocked(session)) return false;
      const uint32_t to = std::min(cursor.next + kStretchTokens, stream.committed(c));
      ClientTokens part = stream.stretch(c, cursor.next, to);
      cursor.next = to;
      cursor.ended = stream.finished(c) && to == stream.committed(c);
      send_stretch(context, session, number, job, std::move(part), row);
    }
  }
  return true;
}

void Gateway::send_stretch(Context& context, Session& session, uint64_t number, Job& job,
                           ClientTokens part, const RequestRow& row) {
  if (part.ids.empty() && part.text.empty()) return;
  if (job.first_sent == kNever) job.first_sent = context.now();
  part.job = number;
  const auto next = part.seq + static_cast<uint32_t>(part.ids.size());
  sessions_.note_sent(session, job, {part.choice, next, wire_bytes(part)});
  context.send(*session.address, part,
               {.request = row.id, .epoch = row.epoch(), .correlation = job.correlation});
}

void Gateway::send_terminal(Context& context, const RequestRow& row, const Session& session,
                            uint64_t number, Job& job) {
  job.told = true;
  const Routing routing{.request = row.id, .epoch = row.epoch(), .correlation = job.correlation};
  if (row.refusal) {
    context.send(*session.address, ClientRefused{number, *row.refusal}, routing);
    return;
  }
  ClientDone done;
  done.job = number;
  for (uint32_t c = 0; c < row.stream->choices(); ++c) {
    done.choices.push_back(row.stream->result(c));
  }
  done.prompt_ids = row.prompt;
  if (row.scores) {
    done.prompt_logprobs = row.scores->logprobs;
    done.prompt_top = row.scores->top;
  }
  done.usage = row.usage;
  // From arrival to the first token sent; where none is streamed, to the first one there was (T94).
  const Micros first = job.first_sent != kNever        ? job.first_sent
                       : row.first_commit_at != kNever ? row.first_commit_at
                                                       : row.ended_at;
  done.ttft_us = std::max<Micros>(first - job.arrived, 0);
  done.total_us = std::max<Micros>(row.ended_at - job.arrived, 0);
  context.send(*session.address, done, routing);
}

// ---------------------------------------------------------------- slow readers

void Gateway::stall(Context& context, Session& session, uint64_t number) {
  if (session.backlog.empty()) stop_timer(context, session.slow_timer);  // an earlier stall's
  session.backlog.insert(number);
  watch_reader(context, session);
}

void Gateway::watch_reader(Context& context, Session& session) {
  if (session.backlog.empty() || session.slow_timer.value != 0 || !session.address) return;
  session.slow_timer = context.set_timer(options_.limits.slow_reader_us, kSlow, session.id.value);
}

// True while no client of the request has taken what there is of the choice: then its worker is not
// told to go on, so that the slot pauses. One that needs no stream is always ready.
bool Gateway::reader_waits(const RequestRow& row, uint32_t choice) {
  for (const JobKey& key : row.waiters) {
    const Job& job = sessions_.find(key.session)->jobs.at(key.job);
    if (!job.stream || job.cursors[choice].next >= row.stream->committed(choice)) return false;
  }
  return true;
}

void Gateway::on(Context& context, const Envelope& from, ClientAck& ack) {
  Session* session = sessions_.at(from.from);
  if (session == nullptr) return;
  const auto known = session->jobs.find(ack.job);
  if (known == session->jobs.end()) return;  // forgotten: acknowledged before
  const RequestRow* row = find(known->second.request);
  CHECK(row != nullptr);
  std::vector<uint32_t> next{ack.next};
  next.insert(next.end(), ack.next_more.begin(), ack.next_more.end());
  const bool reads = sessions_.acknowledge(*session, known->second, next) > 0;
  if (ack.done && known->second.told) forget_job(context, *session, ack.job);
  if (reads) stop_timer(context, session->slow_timer);
  pump(context, *session);
  watch_reader(context, *session);
}

// Sends a client what waited for it, and lets the workers go on. Whatever frees bytes of a session
// ends here.
void Gateway::pump(Context& context, Session& session) {
  const std::set<uint64_t> backlog = session.backlog;
  for (const uint64_t number : backlog) {
    if (sessions_.blocked(session)) return;
    RequestRow* row = find(session.jobs.at(number).request);
    CHECK(row != nullptr);
    deliver(context, *row, session, number);
    if (row->live() && row->stream) acknowledge(context, *row);
  }
}

void Gateway::on_slow_timer(Context& context, SessionId id) {
  Session* session = sessions_.find(id);
  if (session == nullptr || !session->address) return;
  session->slow_timer = {};
  if (session->backlog.empty()) return;
  ++counters_.slow_readers;
  const std::set<uint64_t> backlog = session->backlog;
  for (const uint64_t number : backlog) {
    if (!session->jobs.contains(number)) continue;  // forgotten to make room for the one before
    Job& job = session->jobs.at(number);
    RequestRow* row = find(job.request);
    CHECK(row != nullptr);
    job.must_fetch = false;
    job.stream = false;  // what it did not read is dropped; its terminal event comes all the same
    drop_job(context, *session, number,
             {ErrorCode::cancelled,
              fmt::format("the client read nothing for {} ms while its stream waited; read faster, "
                          "acknowledge what you read, or submit with stream = false",
                          options_.limits.slow_reader_us / kMillisecond),
              0});
    if (session->jobs.contains(number)) deliver(context, *row, *session, number);
  }
}

// ---------------------------------------------------------------- fetching

void Gateway::on(Context& context, const Envelope& from, Fetch& fetch) {
  Session* session = session_of(from, fetch.job, context);
  if (session == nullptr) return;
  const auto known = session->jobs.find(fetch.job);
  if (known == session->jobs.end()) {
    return refuse(context, from, fetch.job,
                  {ErrorCode::not_found,
                   fmt::format("job {} is not known in this session: it never arrived, or its "
                               "result is no longer kept; submit it again",
                               fetch.job),
                   0});
  }
  RequestRow* row = find(known->second.request);
  CHECK(row != nullptr);
  std::vector<uint32_t> has{fetch.after_seq};
  has.insert(has.end(), fetch.after_more.begin(), fetch.after_more.end());
  has.resize(known->second.cursors.size(), fetch.after_seq);
  resume(context, *row, *session, fetch.job, has);
  pump(context, *session);
}

void Gateway::resume(Context& context, RequestRow& row, Session& session, uint64_t number,
                     const std::vector<uint32_t>& from) {
  Job& job = session.jobs.at(number);
  job.must_fetch = false;
  job.told = false;
  sessions_.rewind(session, job, from);
  for (uint32_t c = 0; row.stream && c < job.cursors.size(); ++c) {
    job.cursors[c].next = std::min(job.cursors[c].next, row.stream->committed(c));
  }
  if (row.epoch() > Epoch{0}) accept(context, session, number, job, row);
  deliver(context, row, session, number);
  if (row.live() && row.stream) acknowledge(context, row);
}

// ---------------------------------------------------------------- keeping results

void Gateway::keep(Context& context, RequestRow& row) {
  row.kept_bytes = sizeof(RequestRow) + row.prompt.size() * sizeof(TokenId);
  if (row.stream) row.kept_bytes += row.stream->bytes();
  if (row.scores) {
    row.kept_bytes += row.scores->logprobs.size() * sizeof(float);
    for (const auto& top : row.scores->top) {
      row.kept_bytes += sizeof(top) + top.size() * sizeof(TokenLogprob);
    }
  }
  row.expires_at = context.now() + options_.limits.results_ttl_us;
  kept_.emplace(row.expires_at, row.id);
  kept_bytes_ += row.kept_bytes;
  // The newest stays in any case; its callers are not done with it.
  while (kept_.size() > 1 && (kept_.size() > options_.limits.results_kept_max ||
                              kept_bytes_ > options_.limits.results_bytes_max)) {
    const RequestId oldest = kept_.begin()->second;
    forget(context, oldest == row.id ? std::next(kept_.begin())->second : oldest);
  }
  set_expire_timer(context);
}

void Gateway::set_expire_timer(Context& context) {
  if (expire_timer_.value != 0 || kept_.empty()) return;
  const Micros wait = std::max<Micros>(kept_.begin()->first - context.now(), 0);
  expire_timer_ = context.set_timer(wait, kExpire);
}

void Gateway::expire(Context& context) {
  while (!kept_.empty() && kept_.begin()->first <= context.now()) {
    forget(context, kept_.begin()->second);
  }
  set_expire_timer(context);
}

// Drops a finished request and everybody's job that stood for it.
void Gateway::forget(Context& context, RequestId id) {
  RequestRow& row = rows_.at(id);
  CHECK(!row.live());
  for (const JobKey& key : row.waiters) {
    Session& session = *sessions_.find(key.session);
    Job& job = session.jobs.at(key.job);
    // A terminal event that waited for a slow reader is due now.
    if (!job.told && session.address) send_terminal(context, row, session, key.job, job);
    sessions_.erase_job(session, key.job);
    if (session.abandoned && session.jobs.empty()) sessions_.erase(session.id);
  }
  kept_.erase({row.expires_at, id});
  kept_bytes_ -= row.kept_bytes;
  if (!row.submit.idempotency_key.empty()) {
    keys_.remove(row.submit.tenant, row.submit.idempotency_key, id);
  }
  rows_.erase(id);
}

// One client has what it wanted of a finished request. The result stays while another client, or
// an idempotency key, can still ask for it.
void Gateway::forget_job(Context& context, Session& session, uint64_t number) {
  const RequestId id = session.jobs.at(number).request;
  RequestRow& row = rows_.at(id);
  CHECK(!row.live());
  sessions_.erase_job(session, number);
  std::erase(row.waiters, JobKey{session.id, number});
  if (row.waiters.empty() && row.submit.idempotency_key.empty()) forget(context, id);
}

}  // namespace baton
