#include <algorithm>
#include <set>

#include "actors/gateway/gateway.h"
#include "runtime/base/check.h"

// The workers' side of the streams: tokens in, acknowledgements and repeats out, and the two
// questions of the scheduler (Freeze, Done) that end or restart them.

namespace baton {
namespace {

constexpr Micros kGapUs = 200 * kMillisecond;
constexpr Micros kDoneAckUs = 500 * kMillisecond;

}  // namespace

void Gateway::on(Context& context, const Envelope& from, Tokens& tokens) {
  if (fenced_client(from)) return;
  std::set<RequestId> touched;
  for (const TokenEntry& entry : tokens.entries) {
    RequestRow* row = find(entry.request);
    if (row == nullptr || !row->live() || !row->stream) {
      ++counters_.tokens_late;
      continue;
    }
    const uint32_t before = row->stream->committed_total();
    switch (row->stream->accept(entry, from.from)) {
      case Commit::committed:
      case Commit::duplicate:  // sent again: the acknowledgement may be due
        break;
      case Commit::held:
      case Commit::dropped: ++counters_.tokens_held; break;
      case Commit::stale: ++counters_.tokens_stale; continue;
      case Commit::ended:
        ++counters_.tokens_late;
        tell_ended(context, *row, entry, from.from);
        continue;
      case Commit::invalid:
        abort(context, *row,
              {ErrorCode::internal,
               "a worker sent a token that is none of this request's; the request was ended", 0});
        touched.erase(entry.request);
        continue;
    }
    const uint32_t committed = row->stream->committed_total() - before;
    if (committed == 0 && entry.seq < row->stream->committed(entry.choice)) {
      ++counters_.tokens_duplicate;
    }
    counters_.tokens += committed;
    touched.insert(entry.request);
  }
  for (const RequestId id : touched) {
    if (RequestRow* row = find(id); row != nullptr && row->live()) after_commit(context, *row);
  }
}

// A worker goes on with a choice that has ended by a stop string, while others of its request run.
void Gateway::tell_ended(Context& context, const RequestRow& row, const TokenEntry& entry,
                         const ActorId& worker) {
  const Stream& stream = *row.stream;
  if (!stream.stopped_by_text(entry.choice) || entry.epoch != stream.epoch()) return;
  context.send(worker, TokensAck{entry.choice, stream.committed(entry.choice), true},
               {.request = row.id, .epoch = stream.epoch()});
}

// Whatever moved a stream ends here: clients get what is new, workers hear how far it is, and a
// stream with all its tokens is closed. The row may be finished afterwards.
void Gateway::after_commit(Context& context, RequestRow& row) {
  if (row.first_commit_at == kNever && row.stream->committed_total() > 0) {
    row.first_commit_at = context.now();
  }
  deliver_all(context, row);
  acknowledge(context, row);
  watch_gap(context, row);
  if (row.phase == RequestPhase::running && row.stream->finished()) close(context, row);
}

// ---------------------------------------------------------------- closing

void Gateway::close(Context& context, RequestRow& row) {
  if (row.stream->outcome() == Finish::error) {
    send_done(context, row);
    return conclude(context, row,
                    Refusal{ErrorCode::internal,
                            "the model's output was not a number at this point (numerical error); "
                            "the request was ended, the workers serve on",
                            0});
  }
  row.phase = RequestPhase::closing;
  const bool complete = !row.scores_wanted || row.scores;
  if (complete) send_done(context, row);
  row.close_timer =
      context.set_timer(complete ? kDoneAckUs : options_.limits.stage_us, kClose, row.id.value);
}

void Gateway::send_done(Context& context, RequestRow& row) {
  context.send(options_.scheduler, Done{row.stream->outcome(), row.stream->committed_total()},
               {.request = row.id, .epoch = row.epoch()});
}

void Gateway::on(Context& context, const Envelope& from, DoneAck& ack) {
  RequestRow* row = find(from.request);
  if (fenced_client(from) || row == nullptr || row->phase != RequestPhase::closing) return;
  finish(context, *row, ack.usage);
}

// DoneAck, or the prompt's log-probabilities, did not come in time.
void Gateway::on_close_timer(Context& context, RequestRow& row) {
  row.close_timer = {};
  if (!row.scores_wanted || row.scores) return finish(context, row, row.usage);
  abort(context, row,
        {ErrorCode::worker_lost,
         "the prompt's log-probabilities were lost with the worker that computed them; submit the "
         "request again",
         options_.limits.retry_after_us / kMillisecond});
}

void Gateway::finish(Context& context, RequestRow& row, const Usage& usage) {
  row.usage = usage;
  row.usage.prompt_tokens = static_cast<uint32_t>(row.prompt.size());
  row.usage.completion_tokens = row.stream->committed_total();
  conclude(context, row, std::nullopt);
}

void Gateway::on(Context& context, const Envelope& from, PromptScores& scores) {
  RequestRow* row = find(from.request);
  if (fenced_client(from)) return;
  if (row == nullptr || !row->live() || !row->scores_wanted || row->scores ||
      from.epoch < row->epoch()) {
    ++counters_.fenced;
    return;
  }
  if (scores.logprobs.size() + 1 != row->prompt.size()) {
    return abort(context, *row,
                 {ErrorCode::internal,
                  "a worker sent log-probabilities that do not fit the prompt; the request was "
                  "ended",
                  0});
  }
  row->scores = std::move(scores);
  if (row->phase != RequestPhase::closing) return;
  stop_timer(context, row->close_timer);
  close(context, *row);
}

// ---------------------------------------------------------------- freezing

void Gateway::on(Context& context, const Envelope& from, Freeze&) {
  if (fenced_client(from)) return;
  ++counters_.freezes;
  RequestRow* row = find(from.request);
  const Routing routing{
      .request = from.request, .epoch = from.epoch, .correlation = from.correlation};
  if (row == nullptr || !row->live() || !row->stream) {
    // Nobody here waits for it any more (its end and this question crossed).
    context.send(options_.scheduler, Cancel{}, routing);
    return;
  }
  if (from.epoch < row->epoch()) {
    ++counters_.fenced;
    return;
  }
  if (row->stream->advance(from.epoch)) {
    for (uint32_t c = 0; c < row->stream->choices(); ++c) row->acked[c] = row->stream->committed(c);
  }
  const Stream& stream = *row->stream;
  Frozen frozen;
  frozen.committed = stream.committed_ids();
  frozen.complete = row->phase == RequestPhase::closing || stream.finished();
  for (uint32_t c = 0; c < stream.choices(); ++c) {
    if (stream.finished(c)) frozen.ended.push_back(c);
  }
  context.send(options_.scheduler, frozen, routing);
  if (row->phase == RequestPhase::closing && (!row->scores_wanted || row->scores)) {
    send_done(context, *row);  // the first one may have met a later epoch
  }
  after_commit(context, *row);
}

// ---------------------------------------------------------------- acknowledging

void Gateway::acknowledge(Context& context, RequestRow& row) {
  const Stream& stream = *row.stream;
  for (uint32_t c = 0; c < stream.choices(); ++c) {
    // What has ended is acknowledged whoever reads it: the worker need keep none of it.
    if (!stream.finished(c) && reader_waits(row, c)) continue;
    const uint32_t next = stream.committed(c);
    const bool due = stream.finished(c) ? next > row.acked[c] : next >= row.acked[c] + ack_every_;
    if (!due || stream.holder(c).rank == kClientRank) continue;
    row.acked[c] = next;
    const bool ended = stream.stopped_by_text(c) && !stream.finished();
    context.send(stream.holder(c), TokensAck{c, next, ended},
                 {.request = row.id, .epoch = stream.epoch()});
  }
}

void Gateway::watch_gap(Context& context, RequestRow& row) {
  const Stream& stream = *row.stream;
  bool gap = false;
  for (uint32_t c = 0; c < stream.choices(); ++c) gap = gap || stream.has_gap(c);
  if (!gap) return stop_timer(context, row.gap_timer);
  if (row.gap_timer.value != 0) return;
  row.gap_at.resize(stream.choices());
  for (uint32_t c = 0; c < stream.choices(); ++c) row.gap_at[c] = stream.committed(c);
  row.gap_timer = context.set_timer(kGapUs, kGap, row.id.value);
}

void Gateway::on_gap_timer(Context& context, RequestRow& row) {
  row.gap_timer = {};
  const Stream& stream = *row.stream;
  for (uint32_t c = 0; c < stream.choices(); ++c) {
    const bool stuck = stream.has_gap(c) && stream.committed(c) == row.gap_at[c];
    if (!stuck || stream.holder(c).rank == kClientRank) continue;
    ++counters_.resends;
    context.send(stream.holder(c), Resend{c, stream.committed(c)},
                 {.request = row.id, .epoch = stream.epoch()});
  }
  watch_gap(context, row);
}

}  // namespace baton
