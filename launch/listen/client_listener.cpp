#include "launch/listen/client_listener.h"

#include <zmq.h>

#include <utility>

#include "actors/protocol/gateway.h"
#include "runtime/actor/wire.h"
#include "runtime/base/log.h"
#include "runtime/node/io.h"

namespace baton {
namespace {

template <class M>
std::string fault_of(const std::string& body, const Limits& limits) {
  const Result<M> message = decode_body<M>(body, limits);
  return message.ok() ? "" : message.error().text;
}

// Empty if `body` is a message of that kind and clients may send it.
std::string client_fault(MsgKind kind, const std::string& body, const Limits& limits) {
  if (kind == MsgKind::submit) return fault_of<Submit>(body, limits);
  if (kind == MsgKind::fetch) return fault_of<Fetch>(body, limits);
  if (kind == MsgKind::client_ack) return fault_of<ClientAck>(body, limits);
  if (kind == MsgKind::client_cancel) return fault_of<ClientCancel>(body, limits);
  if (kind == MsgKind::client_beat) return fault_of<ClientBeat>(body, limits);
  if (kind == MsgKind::client_hello) return fault_of<ClientHello>(body, limits);
  if (kind == MsgKind::status_query) return fault_of<StatusQuery>(body, limits);
  if (kind == MsgKind::update_weights) return fault_of<UpdateWeights>(body, limits);
  if (kind == MsgKind::model_query) return fault_of<ModelQuery>(body, limits);
  return std::string("clients do not send ") + msg_kind_name(kind);
}

bool is_loopback(const std::string& endpoint) {
  return endpoint.rfind("tcp://127.", 0) == 0 || endpoint.rfind("tcp://[::1]", 0) == 0 ||
         endpoint.rfind("tcp://localhost:", 0) == 0 || endpoint.rfind("ipc://", 0) == 0;
}

void set_options(void* socket, const std::string& endpoint, const Limits& limits) {
  const int linger = 500, mandatory = 1, handshake = 2000, beat = 1000, dead = 5000;
  const int ipv6 = endpoint.find('[') != std::string::npos ? 1 : 0;
  // What a client has not taken is bounded by its unacknowledged bytes, in the gateway.
  const int water = 65536;
  const auto largest = static_cast<int64_t>(limits.message_bytes_max);
  zmq_setsockopt(socket, ZMQ_LINGER, &linger, sizeof linger);
  zmq_setsockopt(socket, ZMQ_ROUTER_MANDATORY, &mandatory, sizeof mandatory);
  zmq_setsockopt(socket, ZMQ_SNDHWM, &water, sizeof water);
  zmq_setsockopt(socket, ZMQ_RCVHWM, &water, sizeof water);
  zmq_setsockopt(socket, ZMQ_HANDSHAKE_IVL, &handshake, sizeof handshake);
  zmq_setsockopt(socket, ZMQ_HEARTBEAT_IVL, &beat, sizeof beat);
  zmq_setsockopt(socket, ZMQ_HEARTBEAT_TIMEOUT, &dead, sizeof dead);
  zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &largest, sizeof largest);
  zmq_setsockopt(socket, ZMQ_IPV6, &ipv6, sizeof ipv6);
}

}  // namespace

ClientListener::ClientListener(Node& node, const ListenerOptions& options)
    : node_(node), options_(options) {}

Result<std::unique_ptr<ClientListener>> ClientListener::open(Node& node,
                                                             const ListenerOptions& options) {
  if (!options.insecure && !is_loopback(options.endpoint)) {
    return Error{
        ErrorCode::invalid_argument,
        "--client-endpoint " + options.endpoint +
            " can be reached from other hosts and its traffic is not encrypted; expected "
            "a loopback address such as tcp://127.0.0.1:5757, or --insecure on an isolated "
            "network"};
  }
  std::unique_ptr<ClientListener> listener(new ClientListener(node, options));
  if (Result<void> bound = listener->bind(); !bound.ok()) return bound.error();
  return listener;
}

Result<void> ClientListener::bind() {
  context_ = zmq_ctx_new();
  socket_ = zmq_socket(context_, ZMQ_ROUTER);
  set_options(socket_, options_.endpoint, options_.limits);
  auto& io = NodeIo::of(node_);
  monitor_ =
      std::make_unique<ZmqMonitor>(io, context_, socket_, [this](ZmqMonitor::Event event, int fd) {
        if (event == ZmqMonitor::Event::lost) lost(fd);
      });
  if (zmq_bind(socket_, options_.endpoint.c_str()) != 0) {
    return Error{ErrorCode::invalid_argument,
                 "cannot listen on " + options_.endpoint + ": " + zmq_strerror(zmq_errno()) +
                     "; is another server running there? --client-endpoint takes another one"};
  }
  char actual[256] = {};
  size_t size = sizeof actual;
  zmq_getsockopt(socket_, ZMQ_LAST_ENDPOINT, actual, &size);
  endpoint_ = actual;
  ZmqPump::Options pump;
  pump.outbox_max = options_.limits.outbox_max;
  pump.drop_when_full = true;
  pump_ = std::make_unique<ZmqPump>(
      io, std::exchange(socket_, nullptr), pump,
      [this](ZmqFrames frames, int fd) { receive(std::move(frames), fd); });
  return {};
}

ClientListener::~ClientListener() {
  monitor_.reset();
  pump_.reset();
  if (socket_) zmq_close(socket_);
  if (context_) zmq_ctx_term(context_);
}

uint32_t ClientListener::number_of(const std::string& routing_id, int fd) {
  const auto [it, fresh] = numbers_.try_emplace(routing_id, next_number_);
  if (fresh) {
    connections_[next_number_].routing_id = routing_id;
    ++next_number_;
  }
  connections_[it->second].fd = fd;
  return it->second;
}

void ClientListener::receive(ZmqFrames frames, int fd) {
  if (frames.empty()) return;
  const uint32_t number = number_of(frames[0], fd);
  Connection& connection = connections_[number];
  if (connection.banned) return;
  ++counts_.messages;
  if (frames.size() != 3) {
    return refuse(
        number, connection,
        "a message has 2 frames, envelope and body, got " + std::to_string(frames.size() - 1));
  }
  Result<Envelope> envelope = decode_envelope(frames[1], options_.limits);
  if (!envelope.ok()) return refuse(number, connection, envelope.error().text);
  const std::string fault = client_fault(envelope->kind, frames[2], options_.limits);
  if (!fault.empty()) return refuse(number, connection, fault);
  const bool admin = envelope->kind == MsgKind::update_weights;
  if (admin && !options_.allow_admin && !is_loopback(options_.endpoint)) {
    return refuse_update(number, *envelope, frames[2],
                         {ErrorCode::unsupported,
                          "weights are updated over loopback endpoints only; start the server "
                          "with --allow-admin to take it from other hosts",
                          0});
  }
  forward(number, std::move(*envelope), std::move(frames[2]));
}

void ClientListener::forward(uint32_t number, Envelope envelope, std::string body) {
  Mail mail;
  mail.envelope = std::move(envelope);
  mail.envelope.from = ActorId{kClientRank, number, 1};
  mail.envelope.to = options_.gateway;
  mail.envelope.request = {};
  mail.envelope.epoch = {};
  mail.body = body;
  const Envelope sent = mail.envelope;
  const bool accepted = node_.post(std::move(mail)) == Pushed::accepted;
  if (accepted || (sent.kind != MsgKind::submit && sent.kind != MsgKind::update_weights)) return;
  const Refusal full{ErrorCode::busy, "the gateway's queue is full",
                     options_.limits.retry_after_us / kMillisecond};
  if (sent.kind == MsgKind::update_weights) return refuse_update(number, sent, body, full);
  const Result<Submit> submit = decode_body<Submit>(body, options_.limits);
  const ClientRefused refused{submit->job, full};
  Mail answer;
  answer.envelope.kind = ClientRefused::kind;
  answer.envelope.to = ActorId{kClientRank, number, 1};
  answer.body = encode_body(refused);
  deliver(answer);
}

void ClientListener::refuse_update(uint32_t number, const Envelope& envelope,
                                   const std::string& body, const Refusal& refusal) {
  const Result<UpdateWeights> ask = decode_body<UpdateWeights>(body, options_.limits);
  UpdateReport report;
  report.token = ask->token;
  report.last = true;
  report.phase = UpdatePhase::failed;
  report.refusal = refusal;
  Mail answer;
  answer.envelope.kind = UpdateReport::kind;
  answer.envelope.to = ActorId{kClientRank, number, 1};
  answer.envelope.correlation = envelope.correlation;
  answer.body = encode_body(report);
  deliver(answer);
}

void ClientListener::refuse(uint32_t number, Connection& connection, const std::string& why) {
  ++counts_.bad_frames;
  if (node_.now() - connection.minute_us > 60 * kSecond) {
    connection.minute_us = node_.now();
    connection.bad_frames = 0;
  }
  Mail answer;
  answer.envelope.kind = ClientBadFrame::kind;
  answer.envelope.to = ActorId{kClientRank, number, 1};
  answer.body = encode_body(ClientBadFrame{{ErrorCode::bad_frame, why.substr(0, 300), 0}});
  deliver(answer);
  if (++connection.bad_frames >= options_.bad_frames_max) {
    connection.banned = true;
    ++counts_.banned;
    log_warning("client " + std::to_string(number) + " sent " +
                std::to_string(connection.bad_frames) +
                " malformed messages within a minute; its connection is ignored from now on");
  }
}

// Descriptors are reused: of two connections with the same one, the older has ended.
void ClientListener::lost(int fd) {
  for (auto it = connections_.begin(); it != connections_.end(); ++it) {
    if (it->second.fd != fd) continue;
    Mail gone;
    gone.envelope.kind = ClientGone::kind;
    gone.envelope.from = ActorId{kClientRank, it->first, 1};
    gone.envelope.to = options_.gateway;
    gone.body = encode_body(ClientGone{"its connection was closed"});
    numbers_.erase(it->second.routing_id);
    connections_.erase(it);
    node_.post(std::move(gone));
    return;
  }
}

void ClientListener::deliver(const Mail& mail) {
  const auto it = connections_.find(mail.envelope.to.slot);
  if (it == connections_.end() ||
      !pump_->send({it->second.routing_id, encode_envelope(mail.envelope), mail.body})) {
    ++counts_.dropped;
  }
}

}  // namespace baton
