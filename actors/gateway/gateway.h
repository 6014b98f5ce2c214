#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/gateway/prepare.h"
#include "actors/gateway/request_row.h"
#include "actors/protocol/gateway.h"
#include "actors/protocol/worker.h"
#include "runtime/actor/actor.h"
#include "runtime/actor/control_link.h"
#include "runtime/actor/workers.h"

namespace baton {

using GatewayMessages =
    MessageList<ClientHello, Submit, Fetch, ClientAck, ClientCancel, ClientBeat, ClientGone,
                ClientBadFrame, StatusQuery, ModelQuery,                        // clients
                Admitted, AdmitRefused, Freeze, DoneAck, Failed, ClusterReply,  // scheduler
                PeerDown, Tokens, PromptScores,                                 // workers
                Prepared, Timer, Undeliverable, ActorDown, LinkUp, LinkDown>;   // this rank

struct GatewayOptions {
  Limits limits;
  ActorId scheduler{0, kSchedulerSlot, kAnyIncarnation};
  // Shared, because work on the pool may outlive the actor that asked for it.
  std::shared_ptr<const ModelText> text;
  uint32_t context_max = 0;    // positions of one sequence
  TokenId vocabulary = 0;      // ids that the model's weights know
  std::string model;           // name, for clients
  std::string version;         // of Baton
  Workers* workers = nullptr;  // outlives the actor
};

// Since the start of this life; `baton status` shows them under these names.
struct GatewayCounters {
  uint64_t submitted = 0;
  uint64_t attached = 0;  // submits that joined a request by its idempotency key, or repeated one
  uint64_t refused = 0;
  uint64_t done = 0;
  uint64_t failed = 0;  // accepted, but ended without a result; cancelled ones are apart
  uint64_t cancelled = 0;
  uint64_t tokens = 0;            // committed
  uint64_t tokens_held = 0;       // came too early
  uint64_t tokens_duplicate = 0;  // dropped: committed before
  uint64_t tokens_stale = 0;      // dropped: fenced off by epoch
  uint64_t tokens_late = 0;       // dropped: the request or choice had ended
  uint64_t resends = 0;
  uint64_t freezes = 0;
  uint64_t fenced = 0;  // other messages dropped for their epoch, phase or sender
  uint64_t bad_frames = 0;
  uint64_t reconnects = 0;
  uint64_t clients_gone = 0;
  uint64_t slow_readers = 0;
  uint64_t peers_down = 0;
  uint64_t undeliverable = 0;
};

// Owns the clients' sessions and, for each of their requests, its prompt, its stream (the commit
// point) and its result. Lives on the control rank; the runtime calls it on the loop thread. It
// turns text into ids and ids into text, says every refusal aloud, and gives each job exactly one
// terminal event: ClientDone or ClientRefused.
class Gateway final : public ActorOf<Gateway, GatewayMessages> {
 public:
  explicit Gateway(GatewayOptions options);

  void start(Context& context) override;

  // ---- gateway.cpp: sessions and questions
  void on(Context&, const Envelope&, ClientHello&);
  void on(Context&, const Envelope&, ClientBeat&);
  void on(Context&, const Envelope&, ClientGone&);
  void on(Context&, const Envelope&, ClientBadFrame&);
  void on(Context&, const Envelope&, StatusQuery&);
  void on(Context&, const Envelope&, ModelQuery&);
  void on(Context&, const Envelope&, ClusterReply&);
  void on(Context&, const Envelope&, PeerDown&);
  void on(Context&, const Envelope&, Timer&);
  void on(Context&, const Envelope&, LinkUp&) {}  // the scheduler's business, and so is the next
  void on(Context&, const Envelope&, LinkDown&) {}

  // ---- gateway_requests.cpp: from Submit to Admitted, and every end
  void on(Context&, const Envelope&, Submit&);
  void on(Context&, const Envelope&, Prepared&);
  void on(Context&, const Envelope&, Admitted&);
  void on(Context&, const Envelope&, AdmitRefused&);
  void on(Context&, const Envelope&, Failed&);
  void on(Context&, const Envelope&, ClientCancel&);
  void on(Context&, const Envelope&, Undeliverable&);
  void on(Context&, const Envelope&, ActorDown&);

  // ---- gateway_streams.cpp: the workers' side of the streams
  void on(Context&, const Envelope&, Tokens&);
  void on(Context&, const Envelope&, PromptScores&);
  void on(Context&, const Envelope&, Freeze&);
  void on(Context&, const Envelope&, DoneAck&);

  // ---- gateway_delivery.cpp: the clients' side
  void on(Context&, const Envelope&, Fetch&);
  void on(Context&, const Envelope&, ClientAck&);

  const GatewayCounters& counters() const { return counters_; }
  size_t live_requests() const { return live_; }
  size_t kept_results() const { return kept_.size(); }
  size_t sessions() const { return sessions_.size(); }

 private:
  enum TimerPurpose : uint32_t { kDeadline, kGap, kClose, kGrace, kSlow, kExpire };

  struct Question {
    ActorId client;
    uint64_t correlation = 0;
    Micros asked_at = 0;
  };

  void undecodable(Context&, const Envelope&, const Error&) override;

  // ---- gateway.cpp
  Session* session_of(const Envelope& from, uint64_t job, Context& context);
  bool fenced_client(const Envelope& from);  // a client's message where a peer's belongs
  Session* make_session(Context& context, const Envelope& from, const std::string& client);
  void disconnect(Context& context, Session& session);
  void on_grace_passed(Context& context, SessionId id);
  ModelReply model_reply(const std::string& session) const;
  std::vector<NamedCount> named_counts() const;
  void stop_timer(Context& context, TimerId& timer);

  // ---- gateway_requests.cpp
  RequestRow* find(RequestId id);
  // Refuses a Submit that gets no row.
  void refuse(Context& context, const Envelope& from, uint64_t job, Refusal refusal);
  bool repeats(Context& context, const Envelope& from, Session& session, const Submit& submit);
  bool joins(Context& context, const Envelope& from, Session& session, const Submit& submit);
  std::optional<Refusal> find_limit(const Session& session) const;
  RequestRow& make_row(Context& context, const Envelope& from, Submit& submit);
  void attach(Context& context, const Envelope& from, Session& session, RequestRow& row,
              const Submit& submit);
  void admit(Context& context, RequestRow& row, std::vector<TokenId> ids);
  // Ends a live request; `refusal` unless it has a result.
  void conclude(Context& context, RequestRow& row, std::optional<Refusal> refusal);
  // The same, telling the scheduler that nothing of it is wanted any more.
  void abort(Context& context, RequestRow& row, Refusal refusal);
  // One client does not want (or cannot have) its job any more.
  void drop_job(Context& context, Session& session, uint64_t job, const Refusal& refusal);
  Refusal busy(const std::string& text) const;

  // ---- gateway_streams.cpp
  void after_commit(Context& context, RequestRow& row);
  void close(Context& context, RequestRow& row);
  void send_done(Context& context, RequestRow& row);
  void finish(Context& context, RequestRow& row, const Usage& usage);
  void tell_ended(Context& context, const RequestRow& row, const TokenEntry& entry,
                  const ActorId& worker);
  void acknowledge(Context& context, RequestRow& row);
  void watch_gap(Context& context, RequestRow& row);
  void on_gap_timer(Context& context, RequestRow& row);
  void on_close_timer(Context& context, RequestRow& row);

  // ---- gateway_delivery.cpp
  void accept(Context& context, const Session& session, uint64_t number, const Job& job,
              const RequestRow& row);
  // Sends what a client does not have yet of one job, as far as it may be sent.
  void deliver(Context& context, RequestRow& row, Session& session, uint64_t number);
  void deliver_all(Context& context, RequestRow& row);
  bool send_stream(Context& context, const RequestRow& row, Session& session, uint64_t number);
  void send_stretch(Context& context, Session& session, uint64_t number, Job& job,
                    ClientTokens part, const RequestRow& row);
  void send_terminal(Context& context, const RequestRow& row, const Session& session,
                     uint64_t number, Job& job);
  void stall(Context& context, Session& session, uint64_t number);
  void watch_reader(Context& context, Session& session);
  // `from`: per choice, the tokens that the client has; those not named: none.
  void resume(Context& context, RequestRow& row, Session& session, uint64_t number,
              const std::vector<uint32_t>& from);
  bool reader_waits(const RequestRow& row, uint32_t choice);
  void pump(Context& context, Session& session);
  void on_slow_timer(Context& context, SessionId id);
  // Keeps a finished request for Fetch, within the limits.
  void keep(Context& context, RequestRow& row);
  void expire(Context& context);
  void forget(Context& context, RequestId id);
  void forget_job(Context& context, Session& session, uint64_t number);
  void set_expire_timer(Context& context);

  GatewayOptions options_;
  SubmitRules rules_;
  uint32_t ack_every_;  // tokens between two TokensAck
  Sessions sessions_;
  IdempotencyKeys keys_;
  std::map<RequestId, RequestRow> rows_;
  size_t live_ = 0;                              // rows that are not finished
  std::set<std::pair<Micros, RequestId>> kept_;  // finished rows by their time of expiry
  size_t kept_bytes_ = 0;
  TimerId expire_timer_;
  std::map<uint64_t, Question> questions_;  // status queries under way, by correlation
  uint64_t next_question_ = 1;
  uint64_t next_request_ = 0;
  Micros started_at_ = 0;
  GatewayCounters counters_;
};

}  // namespace baton
