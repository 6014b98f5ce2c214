#include "launch/client/connection.h"

#include "launch/client/results.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

namespace baton::client {
namespace {

int64_t now_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(steady_clock::now().time_since_epoch()).count();
}

constexpr int64_t kBeatMs = 2000;  // the server takes ten times this for a vanished client

Error error_of(const Refusal& refusal) {
  return {error_name(refusal.code), refusal.text, refusal.retry_after_ms};
}

// Receives one whole multipart message without waiting. Empty when there is none.
std::vector<std::string> receive_frames(void* socket) {
  std::vector<std::string> frames;
  zmq_msg_t message;
  do {
    zmq_msg_init(&message);
    if (zmq_msg_recv(&message, socket, ZMQ_DONTWAIT) < 0) {
      zmq_msg_close(&message);
      return {};
    }
    frames.emplace_back(static_cast<const char*>(zmq_msg_data(&message)), zmq_msg_size(&message));
    const bool more = zmq_msg_more(&message) != 0;
    zmq_msg_close(&message);
    if (!more) return frames;
  } while (true);
}

template <class T>
std::vector<T> behind(const std::vector<T>& list, size_t known) {
  return {list.begin() + static_cast<ptrdiff_t>(std::min(known, list.size())), list.end()};
}

}  // namespace

std::vector<uint32_t> Stream::Job::more() const {
  std::vector<uint32_t> next;
  for (size_t c = 1; c < progress.size(); ++c) next.push_back(progress[c].next_seq);
  return next;
}

Fetch Stream::Job::fetch() const {
  return {submit.job, progress[0].next_seq, more()};
}

ClientAck Stream::Job::acknowledge(bool done) const {
  return {submit.job, progress[0].next_seq, done, more()};
}

bool Stream::Job::begun() const {
  return std::any_of(progress.begin(), progress.end(),
                     [](const Progress& choice) { return choice.next_seq > 0; });
}

Connection::Connection(const Options& options) : options_(options) {
  context_ = zmq_ctx_new();
  const auto tag = std::to_string(reinterpret_cast<uintptr_t>(this));
  const std::string wake_name = "inproc://wake-" + tag;
  wake_in_ = zmq_socket(context_, ZMQ_PAIR);
  wake_out_ = zmq_socket(context_, ZMQ_PAIR);
  zmq_bind(wake_in_, wake_name.c_str());
  zmq_connect(wake_out_, wake_name.c_str());

  disconnected_at_ms_ = now_ms();
  stopping_ = !open_socket();  // an endpoint that ZeroMQ does not understand; wait_ready says so
  thread_ = std::thread([this] { serve(); });
}

// False if the endpoint is none. The monitor is attached first: the first connection must be seen.
bool Connection::open_socket() {
  socket_ = zmq_socket(context_, ZMQ_DEALER);
  const int linger = 200, handwm = 1000, handshake = 2000, beat = 1000, dead = 5000;
  const int64_t largest = static_cast<int64_t>(limits_.message_bytes_max);
  const int again = 20, again_max = 1000;  // the server waits half a second for who comes back
  zmq_setsockopt(socket_, ZMQ_LINGER, &linger, sizeof linger);
  zmq_setsockopt(socket_, ZMQ_RECONNECT_IVL, &again, sizeof again);
  zmq_setsockopt(socket_, ZMQ_RECONNECT_IVL_MAX, &again_max, sizeof again_max);
  zmq_setsockopt(socket_, ZMQ_SNDHWM, &handwm, sizeof handwm);
  zmq_setsockopt(socket_, ZMQ_HANDSHAKE_IVL, &handshake, sizeof handshake);
  zmq_setsockopt(socket_, ZMQ_HEARTBEAT_IVL, &beat, sizeof beat);
  zmq_setsockopt(socket_, ZMQ_HEARTBEAT_TIMEOUT, &dead, sizeof dead);
  zmq_setsockopt(socket_, ZMQ_MAXMSGSIZE, &largest, sizeof largest);

  const std::string monitor_name = "inproc://monitor-" + std::to_string(++sockets_);
  zmq_socket_monitor(socket_, monitor_name.c_str(),
                     ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED);
  monitor_ = zmq_socket(context_, ZMQ_PAIR);
  zmq_connect(monitor_, monitor_name.c_str());
  return zmq_connect(socket_, options_.endpoint.c_str()) == 0;
}

// What waits in a socket whose connection is lost is thrown away with it.
void Connection::replace_socket() {
  const int none = 0;
  zmq_setsockopt(socket_, ZMQ_LINGER, &none, sizeof none);
  zmq_socket_monitor(socket_, nullptr, 0);
  zmq_close(monitor_);
  zmq_close(socket_);
  open_socket();
}

Connection::~Connection() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    zmq_send(wake_out_, "", 0, ZMQ_DONTWAIT);
  }
  thread_.join();
  for (void* socket : {monitor_, wake_in_, wake_out_, socket_}) zmq_close(socket);
  zmq_ctx_term(context_);
}

bool Connection::wait_ready(Error& error) {
  std::unique_lock lock(mutex_);
  if (stopping_) {
    error = {"invalid_argument",
             "'" + options_.endpoint +
                 "' is not an endpoint; expected something "
                 "like tcp://127.0.0.1:5757",
             0};
    return false;
  }
  const auto limit = std::chrono::milliseconds(options_.connect_timeout_ms);
  if (changed_.wait_for(lock, limit, [this] { return ready_; })) return true;
  error = {"unavailable",
           "no answer from " + options_.endpoint + " within " +
               std::to_string(options_.connect_timeout_ms) + " ms; is 'baton serve' running there?",
           1000};
  return false;
}

// Caller holds mutex_. Until the server has answered a connection's hello nothing is queued: the
// answer decides what each job needs.
template <class M>
void Connection::queue(const M& message, uint64_t correlation) {
  if (!greeted_) return;
  Mail mail;
  mail.envelope.kind = M::kind;
  mail.envelope.correlation = correlation;
  mail.body = encode_body(message);
  outbox_.push_back(std::move(mail));
}

void Connection::submit(const std::shared_ptr<Stream::Job>& job) {
  const std::lock_guard lock(mutex_);
  job->submit.job = next_job_++;
  jobs_[job->submit.job] = job;
  queue(job->submit);
  zmq_send(wake_out_, "", 0, ZMQ_DONTWAIT);
}

void Connection::cancel(uint64_t job) {
  const std::lock_guard lock(mutex_);
  if (!jobs_.contains(job)) return;
  cancelled_.insert(job);
  queue(ClientCancel{job});
  zmq_send(wake_out_, "", 0, ZMQ_DONTWAIT);
}

bool Connection::status(StatusReply& reply, int64_t timeout_ms) {
  std::unique_lock lock(mutex_);
  const uint64_t correlation = next_correlation_++;
  questions_.insert(correlation);
  queue(StatusQuery{}, correlation);
  zmq_send(wake_out_, "", 0, ZMQ_DONTWAIT);
  const bool answered = changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                                          [&] { return replies_.contains(correlation); });
  questions_.erase(correlation);
  if (!answered) return false;
  reply = std::move(replies_[correlation]);
  replies_.erase(correlation);
  return true;
}

void Connection::serve() {
  while (true) {
    std::array<zmq_pollitem_t, 3> items{
        {{socket_, 0, ZMQ_POLLIN, 0}, {monitor_, 0, ZMQ_POLLIN, 0}, {wake_in_, 0, ZMQ_POLLIN, 0}}};
    zmq_poll(items.data(), static_cast<int>(items.size()), 200);
    if (items[0].revents) pump_socket();
    pump_monitor();
    settle();
    while (!receive_frames(wake_in_).empty()) {
    }
    {
      const std::lock_guard lock(mutex_);
      if (connected_ && now_ms() - last_beat_ms_ >= kBeatMs) {
        last_beat_ms_ = now_ms();
        queue(ClientBeat{++beats_});
      }
      flush_outbox();
      if (stopping_) return;
    }
    if (!connected_ && now_ms() - disconnected_at_ms_ > options_.reconnect_timeout_ms) {
      fail_all({"unavailable",
                "the connection to " + options_.endpoint + " was lost for " +
                    std::to_string(options_.reconnect_timeout_ms) + " ms",
                1000});
    }
  }
}

// Caller holds mutex_. While disconnected everything waits: a new connection starts with hello.
void Connection::flush_outbox() {
  while (connected_ && !outbox_.empty()) {
    const Mail& mail = outbox_.front();
    const std::string header = encode_envelope(mail.envelope);
    if (zmq_send(socket_, header.data(), header.size(), ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0) return;
    zmq_send(socket_, mail.body.data(), mail.body.size(), 0);
    outbox_.pop_front();
  }
}

void Connection::pump_monitor() {
  while (true) {
    const auto frames = receive_frames(monitor_);
    if (frames.empty() || frames[0].size() < 2) return;
    uint16_t event = 0;
    std::copy_n(frames[0].data(), sizeof event, reinterpret_cast<char*>(&event));
    const bool made = event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED;
    if (!made && !connected_) continue;
    if (!made) {
      while (pump_socket()) {  // streams go on behind what the connection still brought
      }
      doubtful_.clear();
      disconnected_at_ms_ = now_ms();
      replace_socket();
    }
    const std::lock_guard lock(mutex_);
    connected_ = made;
    greeted_ = made;
    outbox_.clear();  // the greeting brings back what is still needed
    if (made) queue(ClientHello{session_, options_.name});
    greeted_ = false;
  }
}

// Believes the refusals received so far, now that the connection is known to have lasted until
// they came: one that ZeroMQ made again by itself knows no session.
void Connection::settle() {
  for (const auto& fail : std::exchange(doubtful_, {})) fail();
}

// True: there may be more.
bool Connection::pump_socket() {
  for (int budget = 256; budget > 0; --budget) {
    const auto frames = receive_frames(socket_);
    if (frames.empty()) return false;
    if (frames.size() == 2) on_message(frames[0], frames[1]);
  }
  return true;
}

void Connection::on_message(const std::string& header, const std::string& body) {
  const auto envelope = decode_envelope(header, limits_);
  if (!envelope.ok()) return;
  const auto with = [&]<class M>(M*, auto&& handle) {
    auto message = decode_body<M>(body, limits_);
    if (message.ok()) handle(*message);
  };
  switch (envelope->kind) {
    case MsgKind::model_reply:
      return with(static_cast<ModelReply*>(nullptr), [&](auto& m) { on_model(m); });
    case MsgKind::accepted:
      return with(static_cast<Accepted*>(nullptr), [&](Accepted& m) {
        if (const auto job = find(m.job)) {
          const std::lock_guard lock(job->mutex);
          job->accepted = true;
          job->prompt_tokens = m.prompt_tokens;
        }
      });
    case MsgKind::client_tokens:
      return with(static_cast<ClientTokens*>(nullptr), [&](auto& m) { on_tokens(m); });
    case MsgKind::client_done:
      return with(static_cast<ClientDone*>(nullptr), [&](auto& m) { on_done(m); });
    case MsgKind::client_refused:
      return with(static_cast<ClientRefused*>(nullptr),
                  [&](ClientRefused& m) { doubtful_.push_back([this, m] { on_refused(m); }); });
    case MsgKind::client_bad_frame:
      return with(static_cast<ClientBadFrame*>(nullptr), [&](ClientBadFrame& m) {
        doubtful_.push_back([this, error = error_of(m.refusal)] { fail_all(error, true); });
      });
    case MsgKind::status_reply:
      return with(static_cast<StatusReply*>(nullptr), [&](StatusReply& m) {
        const std::lock_guard lock(mutex_);
        if (!questions_.contains(envelope->correlation)) return;
        replies_[envelope->correlation] = std::move(m);
        changed_.notify_all();
      });
    default: return;  // beats and kinds of a newer server
  }
}

void Connection::on_model(const ModelReply& reply) {
  const bool same_session = session_ == reply.session;
  session_ = reply.session;
  {
    const std::lock_guard lock(mutex_);
    greeted_ = true;
    if (!ready_) {
      model_ = {reply.model, reply.version, reply.vocabulary, reply.context_max, reply.eos_ids};
      ready_ = true;
    }
    for (const uint64_t question : questions_) queue(StatusQuery{}, question);
    changed_.notify_all();
  }
  for (const auto& [id, job] : all_jobs()) resume(id, job, same_session);
}

// What the server still knows is fetched from where it stopped; what it does not know is sent again
// if nothing of it was delivered yet.
void Connection::resume(uint64_t id, const std::shared_ptr<Stream::Job>& job, bool same_session) {
  const std::lock_guard job_lock(job->mutex);
  const bool known = same_session && job->accepted;
  if (!known && job->begun()) {
    job->failed = true;
    job->error = {"unavailable", "the server no longer knows this job's session; submit it again",
                  1000};
    finish(id, job);
    return;
  }
  const std::lock_guard lock(mutex_);
  if (known) {
    queue(job->fetch());
  } else {
    queue(job->submit);
  }
  if (cancelled_.contains(id)) queue(ClientCancel{id});
}

std::map<uint64_t, std::shared_ptr<Stream::Job>> Connection::all_jobs() {
  const std::lock_guard lock(mutex_);
  return jobs_;
}

std::shared_ptr<Stream::Job> Connection::find(uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto it = jobs_.find(id);
  return it == jobs_.end() ? nullptr : it->second;
}

// Caller holds the job's mutex.
void Connection::finish(uint64_t id, const std::shared_ptr<Stream::Job>& job) {
  job->finished = true;
  job->changed.notify_all();
  const std::lock_guard lock(mutex_);
  jobs_.erase(id);
  cancelled_.erase(id);
  ++ended_;
  changed_.notify_all();
}

uint64_t Connection::wait_ended(uint64_t seen, int64_t timeout_ms) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms), [&] { return ended_ > seen; });
  return ended_;
}

void Connection::add(Stream::Job& job, Part part) {
  Stream::Job::Progress& progress = job.progress[part.choice];
  progress.next_seq += static_cast<uint32_t>(part.ids.size());
  progress.text_bytes += part.text.size();
  job.parts.push_back(std::move(part));
}

void Connection::on_tokens(const ClientTokens& tokens) {
  const auto job = find(tokens.job);
  if (!job) return;
  const std::lock_guard job_lock(job->mutex);
  if (tokens.choice >= job->progress.size()) return;
  const uint32_t next_seq = job->progress[tokens.choice].next_seq;
  if (tokens.seq > next_seq) {  // a gap: ask for it
    const std::lock_guard lock(mutex_);
    queue(job->fetch());
    return;
  }
  if (!tokens.ids.empty() && tokens.seq + tokens.ids.size() <= next_seq) return;  // a repeat
  const size_t known = next_seq - tokens.seq;
  add(*job, {behind(tokens.ids, known), behind(tokens.logprobs, known),
             behind(tops_of(tokens.top), known), tokens.text, tokens.choice});
  job->changed.notify_all();
  const std::lock_guard lock(mutex_);
  queue(job->acknowledge(false));
}

void Connection::on_done(ClientDone& done) {
  const auto job = find(done.job);
  if (!job) return;
  const std::lock_guard job_lock(job->mutex);
  job->result = result_of(done);
  const Result& result = job->result;
  const size_t streamed = job->submit.stream ? std::min(result.choices(), job->progress.size()) : 0;
  for (size_t c = 0; c < streamed; ++c) {
    const Choice& choice = result.choice(c);
    const auto [next_seq, text_bytes] = job->progress[c];
    if (next_seq >= choice.ids.size() && text_bytes >= choice.text.size()) continue;
    // An end that a lost connection took along.
    add(*job,
        {behind(choice.ids, next_seq), behind(choice.logprobs, next_seq),
         behind(choice.top, next_seq), choice.text.substr(std::min(text_bytes, choice.text.size())),
         static_cast<uint32_t>(c)});
  }
  {
    const std::lock_guard lock(mutex_);
    queue(job->acknowledge(true));
  }
  finish(done.job, job);
}

void Connection::on_refused(const ClientRefused& refused) {
  const auto job = find(refused.job);
  if (!job) return;
  const std::lock_guard job_lock(job->mutex);
  job->failed = true;
  job->error = error_of(refused.refusal);
  finish(refused.job, job);
}

// An answer to a malformed message names no job: it concerns those that were not accepted yet.
void Connection::fail_all(const Error& error, bool unaccepted_only) {
  for (const auto& [id, job] : all_jobs()) {
    const std::lock_guard job_lock(job->mutex);
    if (unaccepted_only && job->accepted) continue;
    job->failed = true;
    job->error = error;
    finish(id, job);
  }
}

}  // namespace baton::client
