#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/protocol/gateway.h"
#include "launch/sim/swarm_plan.h"
#include "runtime/sim/world.h"

namespace baton {

// How a client's job ended, in the client's eyes.
enum class JobEnd : uint8_t { none, done, refused, session_lost };

// What came of one choice.
struct StreamRecord {
  std::vector<TokenId> ids;
  std::vector<float> logprobs;
  std::string text;
};

// One job, and everything its client saw of it.
struct JobRecord {
  Submit submit;
  RequestId request;
  uint32_t connection = 0;  // over which it was submitted last; 0: over none
  bool accepted = false;
  std::vector<StreamRecord> streams;  // by choice
  JobEnd end = JobEnd::none;
  uint32_t ends = 0;         // terminal events
  uint32_t fetches = 0;      // each may bring the terminal event once more
  bool changed_end = false;  // a repeated terminal event was another one
  ClientDone done;
  Refusal refusal;
  bool cancelled = false;     // the client asked for it
  bool disconnected = false;  // the client was away while it ran
  bool must_finish = false;   // nothing was wrong with the cluster: refusing is a defect
};

// How the harness hears of a client.
struct SimClientHooks {
  // A stretch of a stream came: before the client takes it in.
  std::function<void(const JobRecord&, const ClientTokens&)> tokens;
  std::function<void(const std::string&)> complain;  // the gateway broke its protocol
};

// A simulated user: connects, submits, reads, acknowledges, cancels, goes away and comes back. It
// lives outside of the processes; its connection to rank 0 keeps order, takes time, and loses what
// is under way when it breaks.
class SimClient {
 public:
  SimClient(World& world, uint32_t number, const ClientPlan& plan, SimClientHooks hooks);

  // Begins to work through `jobs`, one after the other.
  void start(std::vector<Submit> jobs, bool must_finish);
  // Mail that the gateway sent to one of this client's connections.
  void receive(const Mail& mail);
  // Goes away and does not come back.
  void leave();

  bool owns_connection(uint32_t slot) const { return connection_ && *connection_ == slot; }
  bool left() const { return left_; }
  bool finished() const;  // every job has ended, or it left
  const std::map<uint64_t, JobRecord>& jobs() const { return jobs_; }

 private:
  void connect();
  void disconnect();
  void reconnect_later();
  void submit_next();
  void plan_mischief(uint64_t job);
  void fetch_unfinished();
  void end_job(JobRecord& job, JobEnd end);
  void on_model_reply(const ModelReply& reply);
  void on_tokens(const ClientTokens& part);
  void on_done(ClientDone& done);
  void on_refused(const ClientRefused& refused);
  JobRecord* find(uint64_t job);
  // In order, a while later, if the connection still stands then.
  template <Message M>
  void say(const M& message);
  void deliver(uint32_t connection);

  World& world_;
  const uint32_t number_;
  const ClientPlan plan_;
  const SimClientHooks hooks_;
  std::vector<Submit> waiting_;  // the next one last
  std::map<uint64_t, JobRecord> jobs_;
  std::string session_;
  std::optional<uint32_t> connection_;
  bool greeted_ = false;  // the gateway answered on this connection
  bool must_finish_ = false;
  bool left_ = false;
  uint32_t connections_ = 0;
  std::map<uint32_t, std::deque<Mail>> under_way_;  // by connection; to the gateway, in order
  Micros last_sent_ = 0;
  Micros last_received_ = 0;
};

// Which client a connection belongs to: their numbers are encoded in the slot.
constexpr uint32_t kConnectionsPerClient = 1000;
constexpr uint32_t client_of_connection(uint32_t slot) {
  return slot / kConnectionsPerClient;
}

// A request drawn from the seed.
Submit draw_submit(SimRandom& random, const ClientPlan& plan, uint64_t job, uint32_t context_max);

}  // namespace baton
