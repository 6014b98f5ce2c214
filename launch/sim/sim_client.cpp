#include "launch/sim/sim_client.h"

#include <algorithm>
#include <utility>

namespace baton {
namespace {

constexpr Micros kLatencyMin = 20;
constexpr Micros kLatencyMax = 400;
constexpr Micros kFullRetry = 5 * kMillisecond;
constexpr Micros kHelloRetry = 2 * kSecond;

// Tokens that the client has, per choice.
std::vector<uint32_t> positions(const JobRecord& job) {
  std::vector<uint32_t> has;
  for (const StreamRecord& stream : job.streams) {
    has.push_back(static_cast<uint32_t>(stream.ids.size()));
  }
  return has;
}

ClientAck acknowledgement(const JobRecord& job, bool done) {
  const std::vector<uint32_t> has = positions(job);
  return {job.submit.job, has[0], done, {has.begin() + 1, has.end()}};
}

}  // namespace

SimClient::SimClient(World& world, uint32_t number, const ClientPlan& plan, SimClientHooks hooks)
    : world_(world), number_(number), plan_(plan), hooks_(std::move(hooks)) {}

void SimClient::start(std::vector<Submit> jobs, bool must_finish) {
  must_finish_ = must_finish;
  waiting_ = std::move(jobs);
  std::reverse(waiting_.begin(), waiting_.end());
  world_.at(world_.random().between(0, 500 * kMillisecond), [this] { connect(); });
}

bool SimClient::finished() const {
  if (left_) return true;
  return waiting_.empty() && std::all_of(jobs_.begin(), jobs_.end(), [](const auto& entry) {
           return entry.second.end != JobEnd::none;
         });
}

// ---------------------------------------------------------------- connection

void SimClient::connect() {
  if (connection_ || left_) return;
  connection_ = number_ * kConnectionsPerClient + ++connections_;
  greeted_ = false;
  last_sent_ = last_received_ = world_.now();
  say(ClientHello{session_, "sim"});
  const uint32_t connection = *connection_;
  world_.at(kHelloRetry, [this, connection] {
    if (!owns_connection(connection) || greeted_) return;
    disconnect();
    connect();
  });
}

void SimClient::disconnect() {
  if (!connection_) return;
  under_way_[*connection_].clear();  // it is lost
  say(ClientGone{"the simulated client went away"});
  connection_.reset();
  for (auto& [number, job] : jobs_) {
    if (job.end == JobEnd::none) job.disconnected = true;
  }
}

void SimClient::reconnect_later() {
  world_.at(world_.random().between(1, std::max<Micros>(plan_.away_us_max, 1)),
            [this] { connect(); });
}

void SimClient::leave() {
  disconnect();
  left_ = true;
}

template <Message M>
void SimClient::say(const M& message) {
  if (!connection_) return;
  Mail mail;
  mail.envelope.kind = M::kind;
  mail.envelope.from = {kClientRank, *connection_, 1};
  mail.envelope.to = {0, kGatewaySlot, kAnyIncarnation};
  mail.body = encode_body(message);
  under_way_[*connection_].push_back(std::move(mail));
  last_sent_ =
      std::max(last_sent_ + 1, world_.now() + world_.random().between(kLatencyMin, kLatencyMax));
  world_.at_rank(0, last_sent_ - world_.now(),
                 [this, connection = *connection_] { deliver(connection); });
}

// Whatever is next in line: rank 0 may have been stalled, and then arrivals come in any order.
void SimClient::deliver(uint32_t connection) {
  std::deque<Mail>& line = under_way_[connection];
  if (line.empty()) return;
  if (world_.host(0).post(Mail(line.front())) != Pushed::full) return line.pop_front();
  // A listener would say busy; waiting instead keeps the order of what the client says.
  world_.at_rank(0, kFullRetry, [this, connection] { deliver(connection); });
}

void SimClient::receive(const Mail& mail) {
  if (!owns_connection(mail.envelope.to.slot)) return;
  last_received_ = std::max(last_received_ + 1,
                            world_.now() + world_.random().between(kLatencyMin, kLatencyMax));
  world_.at(last_received_ - world_.now(), [this, connection = *connection_, mail] {
    if (!owns_connection(connection)) return;
    const Limits limits;
    switch (mail.envelope.kind) {
      case MsgKind::model_reply: return on_model_reply(*decode_body<ModelReply>(mail.body, limits));
      case MsgKind::accepted: {
        const Accepted accepted = *decode_body<Accepted>(mail.body, limits);
        if (JobRecord* job = find(accepted.job)) {
          job->accepted = true;
          job->request = accepted.request;
        }
        return;
      }
      case MsgKind::client_tokens: return on_tokens(*decode_body<ClientTokens>(mail.body, limits));
      case MsgKind::client_done: {
        ClientDone done = *decode_body<ClientDone>(mail.body, limits);
        return on_done(done);
      }
      case MsgKind::client_refused:
        return on_refused(*decode_body<ClientRefused>(mail.body, limits));
      default: hooks_.complain(std::string("a client got a ") + msg_kind_name(mail.envelope.kind));
    }
  });
}

void SimClient::on_model_reply(const ModelReply& reply) {
  greeted_ = true;
  if (!session_.empty() && reply.session != session_) {
    for (auto& [number, job] : jobs_) {
      const bool of_old_session = job.connection != *connection_;
      if (job.end == JobEnd::none && of_old_session) end_job(job, JobEnd::session_lost);
    }
  }
  session_ = reply.session;
  fetch_unfinished();
  if (jobs_.empty()) submit_next();
}

// ---------------------------------------------------------------- jobs

void SimClient::fetch_unfinished() {
  for (auto& [number, job] : jobs_) {
    if (job.end != JobEnd::none || job.connection == *connection_) continue;
    ++job.fetches;
    const std::vector<uint32_t> has = positions(job);
    say(Fetch{number, has[0], {has.begin() + 1, has.end()}});
  }
}

void SimClient::submit_next() {
  if (waiting_.empty() || left_) return;
  const Submit submit = std::move(waiting_.back());
  waiting_.pop_back();
  JobRecord& job = jobs_[submit.job];
  job.submit = submit;
  job.streams.resize(submit.n);
  job.must_finish = must_finish_;
  job.disconnected = !connection_;
  job.connection = connection_.value_or(0);
  say(submit);
  plan_mischief(submit.job);
  world_.at(world_.random().between(0, plan_.think_us_max), [this] { submit_next(); });
}

void SimClient::plan_mischief(uint64_t number) {
  SimRandom& random = world_.random();
  if (must_finish_) return;
  if (random.chance(plan_.cancel)) {
    world_.at(random.between(0, 400 * kMillisecond), [this, number] {
      JobRecord* job = find(number);
      if (!job || job->end != JobEnd::none || !connection_) return;
      job->cancelled = true;
      say(ClientCancel{number});
    });
  }
  if (random.chance(plan_.disconnect)) {
    world_.at(random.between(0, 400 * kMillisecond), [this] {
      if (!connection_ || left_) return;
      disconnect();
      reconnect_later();
    });
  }
}

JobRecord* SimClient::find(uint64_t job) {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? nullptr : &found->second;
}

void SimClient::on_tokens(const ClientTokens& part) {
  JobRecord* job = find(part.job);
  if (!job) return hooks_.complain("tokens came for a job that was never submitted");
  if (part.choice >= job->streams.size()) {
    return hooks_.complain("tokens came for a choice that was not asked for");
  }
  hooks_.tokens(*job, part);
  StreamRecord& stream = job->streams[part.choice];
  const size_t size = stream.ids.size();
  const size_t known = std::min(size - std::min<size_t>(part.seq, size), part.ids.size());
  const auto fresh = static_cast<ptrdiff_t>(known);
  stream.ids.insert(stream.ids.end(), part.ids.begin() + fresh, part.ids.end());
  if (part.logprobs.size() == part.ids.size()) {
    stream.logprobs.insert(stream.logprobs.end(), part.logprobs.begin() + fresh,
                           part.logprobs.end());
  }
  stream.text += part.text;
  if (world_.random().chance(0.5)) say(acknowledgement(*job, false));
}

void SimClient::end_job(JobRecord& job, JobEnd end) {
  job.changed_end |= job.end != JobEnd::none && job.end != end;
  job.end = end;
  ++job.ends;
}

void SimClient::on_done(ClientDone& done) {
  JobRecord* job = find(done.job);
  if (!job) return hooks_.complain("a result came for a job that was never submitted");
  end_job(*job, JobEnd::done);
  say(acknowledgement(*job, true));
  job->done = std::move(done);
}

void SimClient::on_refused(const ClientRefused& refused) {
  JobRecord* job = find(refused.job);
  if (!job) return;  // the hello was refused; it is repeated
  const bool unknown = refused.refusal.code == ErrorCode::not_found;
  // A Fetch that crossed with the result, which the client has acknowledged since.
  if (unknown && job->end != JobEnd::none && job->fetches > 0) return;
  const bool never_arrived = unknown && !job->accepted;
  if (never_arrived && job->disconnected && job->end == JobEnd::none) {
    job->connection = *connection_;
    return say(job->submit);
  }
  job->refusal = refused.refusal;
  end_job(*job, JobEnd::refused);
}

// ---------------------------------------------------------------- requests

Submit draw_submit(SimRandom& random, const ClientPlan& plan, uint64_t number,
                   uint32_t context_max) {
  Submit submit;
  submit.job = number;
  const auto prompt = static_cast<uint32_t>(random.between(1, plan.prompt_max));
  const uint32_t most = std::max(context_max - std::min(prompt, context_max - 1), 1u);
  const bool text = random.chance(0.3);
  for (uint32_t i = 0; i < std::min(prompt, context_max - 1); ++i) {
    if (text) {
      submit.text += static_cast<char>(random.between('a', 'z'));
    } else {
      submit.ids.push_back(static_cast<TokenId>(random.below(256)));
    }
  }
  submit.has_max_tokens = !random.chance(0.1);
  const auto wanted =
      static_cast<uint32_t>(random.between(random.chance(0.05) ? 0 : 1, plan.new_max));
  submit.max_tokens = submit.has_max_tokens ? std::min(wanted, most) : 0;
  if (random.chance(0.2)) submit.min_tokens = std::min(submit.max_tokens, 4u);
  submit.ignore_eos = random.chance(0.2);
  if (random.chance(0.2)) submit.stop_ids = {static_cast<TokenId>(random.below(256)), 7};
  if (submit.min_tokens == 0 && random.chance(0.3)) {
    submit.stop = {std::string(1, static_cast<char>(random.between('a', 'h')))};
  }
  submit.has_seed = random.chance(0.5);
  submit.sampling.seed = submit.has_seed ? random.next() : 0;
  if (random.chance(0.6)) {
    submit.sampling.top_logprobs = static_cast<int32_t>(random.between(0, 2));
  }
  if (random.chance(0.2)) submit.sampling.prompt_logprobs = 0;
  submit.priority = static_cast<int32_t>(random.between(-1, 1));
  submit.stream = !random.chance(0.15);
  if (plan.choices_max > 1 && random.chance(0.4)) {
    submit.n = static_cast<uint32_t>(random.between(2, plan.choices_max));
  }
  return submit;
}

}  // namespace baton
