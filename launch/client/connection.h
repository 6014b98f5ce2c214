#pragma once

#include <zmq.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "actors/protocol/gateway.h"
#include "launch/client/baton_client.h"
#include "runtime/actor/wire.h"
#include "runtime/base/limits.h"

namespace baton::client {

// What a job's owner and the connection's thread share. Guarded by its mutex.
struct Stream::Job {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Part> parts;
  Submit submit;  // kept for sending again after a reconnect; written before start
  uint32_t prompt_tokens = 0;
  struct Progress {
    uint32_t next_seq = 0;  // tokens received so far
    size_t text_bytes = 0;  // of the parts
  };
  std::vector<Progress> progress;      // per choice
  bool begun() const;                  // something has come
  std::vector<uint32_t> more() const;  // tokens that have come of the choices behind the first
  Fetch fetch() const;
  ClientAck acknowledge(bool done) const;
  bool accepted = false;
  bool finished = false;
  bool failed = false;
  Result result;
  Error error;
};

// Owns the socket and the thread that serves it. Its public functions are thread-safe: they queue
// what is to be sent and wake the thread.
//
// A socket serves one connection: hello must be the first thing that the server hears, so what
// waits in a socket whose connection is lost goes with it. (ZMQ_IMMEDIATE would do that too, but
// libzmq aborts the process when such a socket loses its connection amid the parts of a message.)
class Connection {
 public:
  explicit Connection(const Options& options);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Waits for the first answer of the server.
  bool wait_ready(Error& error);
  const Model& model() const { return model_; }
  void submit(const std::shared_ptr<Stream::Job>& job);
  void cancel(uint64_t job);
  bool status(StatusReply& reply, int64_t timeout_ms);
  // Jobs that have ended so far; waits until there are more than `seen` or time is up.
  uint64_t wait_ended(uint64_t seen, int64_t timeout_ms);

 private:
  void serve();
  bool open_socket();
  void replace_socket();
  void settle();
  bool pump_socket();
  void pump_monitor();
  void flush_outbox();
  void on_message(const std::string& header, const std::string& body);
  void on_model(const ModelReply& reply);
  void on_tokens(const ClientTokens& tokens);
  void on_done(ClientDone& done);
  void on_refused(const ClientRefused& refused);
  void resume(uint64_t id, const std::shared_ptr<Stream::Job>& job, bool same_session);
  std::map<uint64_t, std::shared_ptr<Stream::Job>> all_jobs();
  static void add(Stream::Job& job, Part part);
  void fail_all(const Error& error, bool unaccepted_only = false);
  std::shared_ptr<Stream::Job> find(uint64_t job);
  void finish(uint64_t id, const std::shared_ptr<Stream::Job>& job);
  template <class M>
  void queue(const M& message, uint64_t correlation = 0);

  Options options_;
  Limits limits_;
  void* context_ = nullptr;
  void* socket_ = nullptr;
  void* monitor_ = nullptr;
  void* wake_in_ = nullptr;   // the thread's end
  void* wake_out_ = nullptr;  // the callers' end, guarded by mutex_

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Mail> outbox_;
  std::map<uint64_t, std::shared_ptr<Stream::Job>> jobs_;  // shared with their streams
  std::set<uint64_t> cancelled_;                           // of these jobs
  std::set<uint64_t> questions_;  // correlations of status queries without an answer
  std::map<uint64_t, StatusReply> replies_;
  uint64_t next_job_ = 1;
  uint64_t ended_ = 0;  // jobs
  uint64_t next_correlation_ = 1;
  bool stopping_ = false;
  bool ready_ = false;
  bool greeted_ = false;  // this connection's hello has its answer
  Model model_;

  // Of the thread alone.
  std::string session_;
  uint64_t sockets_ = 0;                         // opened so far
  std::vector<std::function<void()>> doubtful_;  // refusals that wait for settle()
  bool connected_ = false;
  int64_t disconnected_at_ms_ = 0;
  int64_t last_beat_ms_ = 0;
  uint64_t beats_ = 0;

  std::thread thread_;
};

}  // namespace baton::client
