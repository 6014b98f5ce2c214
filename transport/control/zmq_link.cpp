#include "transport/control/zmq_link.h"

#include <zmq.h>

#include <utility>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <map>

#include "runtime/actor/wire.h"
#include "runtime/base/check.h"
#include "transport/control/zmq_pump.h"
#include "transport/control/zmq_socket.h"

namespace baton {
namespace {

ZmqFrames frames_of(LinkPacket packet) {
  ZmqFrames frames;
  frames.push_back(encode_link_header(packet));
  if (packet.mail) {
    frames.push_back(encode_envelope(packet.mail->envelope));
    frames.push_back(std::move(packet.mail->body));
  }
  return frames;
}

}  // namespace

struct ZmqLink::Impl : std::enable_shared_from_this<ZmqLink::Impl> {
  // A session, and the connection that carries what it sends. The monitor goes before the pump.
  struct Peer {
    Peer(const LinkSessionOptions& options, Micros now) : session(options, now) {}
    std::string endpoint;
    LinkSession session;
    std::unique_ptr<ZmqPump> dealer;  // made when there is something to send
    std::unique_ptr<ZmqMonitor> monitor;
  };

  Impl(boost::asio::io_context& loop, const ZmqLinkOptions& wanted, ZmqLinkSinks given)
      : io(loop), options(wanted), sinks(std::move(given)), timer(loop) {}

  ~Impl() {
    for (auto& [rank, peer] : peers) disconnect(peer);
  }

  Result<void> bind();
  Peer* find(uint32_t rank);
  void on_frames(ZmqFrames frames);
  Result<LinkPacket> decode(ZmqFrames& frames) const;
  void connect(uint32_t rank, Peer& peer);
  void disconnect(Peer& peer);
  void on_connection(uint32_t rank, bool made);
  void flush(Peer& peer, uint32_t rank);
  void arm();
  void on_timer();

  boost::asio::io_context& io;
  const ZmqLinkOptions options;
  const ZmqLinkSinks sinks;
  ZmqContext context;  // before all sockets
  std::string endpoint;
  std::unique_ptr<ZmqPump> zap;
  std::unique_ptr<ZmqPump> router;
  std::map<uint32_t, Peer> peers;
  boost::asio::steady_timer timer;
  Micros armed_at = kNever;
  ZmqLinkCounters counters;
};

Result<void> ZmqLink::Impl::bind() {
  if (options.curve.given()) {
    void* socket = zmq_socket(context.handle, ZMQ_REP);
    CHECK(socket != nullptr && zmq_bind(socket, kZapEndpoint) == 0);
    zap = std::make_unique<ZmqPump>(io, socket, ZmqPump::Options{},
                                    [this](const ZmqFrames& request, int) {
                                      zap->send(zap_answer(request, options.curve.public_key));
                                    });
  }
  void* socket = make_link_socket(context, ZMQ_ROUTER, options);
  Result<std::string> bound = bind_free_port(socket, options.bind_host);
  if (!bound.ok()) {
    zmq_close(socket);
    return bound.error();
  }
  endpoint = *bound;
  if (!options.advertise_host.empty()) {
    endpoint = "tcp://" + options.advertise_host + endpoint.substr(endpoint.rfind(':'));
  }
  router = std::make_unique<ZmqPump>(io, socket, ZmqPump::Options{}, [this](ZmqFrames frames, int) {
    on_frames(std::move(frames));
  });
  return {};
}

ZmqLink::Impl::Peer* ZmqLink::Impl::find(uint32_t rank) {
  auto at = peers.find(rank);
  return at == peers.end() ? nullptr : &at->second;
}

void ZmqLink::Impl::on_frames(ZmqFrames frames) {
  Result<LinkPacket> packet = decode(frames);
  if (!packet.ok()) {
    ++counters.bad_frames;
    return;
  }
  const uint32_t rank = packet->source_rank;
  Peer* peer = find(rank);
  if (!peer) {
    ++counters.unknown_peers;
    return;
  }
  peer->session.receive(std::move(*packet), sinks.now());
  flush(*peer, rank);
}

// Frames: routing id, header, and for mail its envelope and body.
Result<LinkPacket> ZmqLink::Impl::decode(ZmqFrames& frames) const {
  if (frames.size() != 2 && frames.size() != 4) {
    return Error{ErrorCode::bad_frame, std::to_string(frames.size()) + " frames"};
  }
  Result<LinkPacket> packet = decode_link_header(frames[1], options.limits);
  if (!packet.ok() || frames.size() == 2) return packet;
  Result<Envelope> envelope = decode_envelope(frames[2], options.limits);
  if (!envelope.ok()) return envelope.error();
  if (envelope->from.rank != packet->source_rank || envelope->to.rank != options.rank) {
    return Error{ErrorCode::bad_frame, "an envelope of other ranks than its packet"};
  }
  packet->mail = Mail{std::move(*envelope), std::move(frames[3])};
  return packet;
}

void ZmqLink::Impl::connect(uint32_t rank, Peer& peer) {
  void* socket = make_link_socket(context, ZMQ_DEALER, options);
  // The monitor first, so that it misses no connection.
  peer.monitor = std::make_unique<ZmqMonitor>(
      io, context.handle, socket, [this, rank](ZmqMonitor::Event event, int) {
        on_connection(rank, event == ZmqMonitor::Event::made);
      });
  CHECK_MSG(zmq_connect(socket, peer.endpoint.c_str()) == 0, "set_peer() checked it");
  ZmqPump::Options pump;
  pump.outbox_max = options.limits.outbox_max;
  // A ROUTER of ours never answers on this connection.
  peer.dealer = std::make_unique<ZmqPump>(io, socket, pump,
                                          [this](const ZmqFrames&, int) { ++counters.bad_frames; });
}

void ZmqLink::Impl::disconnect(Peer& peer) {
  peer.monitor.reset();
  peer.dealer.reset();
}

void ZmqLink::Impl::on_connection(uint32_t rank, bool made) {
  Peer* peer = find(rank);
  if (!peer) return;
  if (made) {
    peer->session.connected(sinks.now());
  } else {
    peer->session.disconnected("the connection to rank " + std::to_string(rank) + " was closed");
  }
  flush(*peer, rank);
}

// Carries out what a session wants done. A sink may call this link again.
void ZmqLink::Impl::flush(Peer& peer, uint32_t rank) {
  for (LinkPacket& packet : peer.session.take_packets()) {
    if (!peer.dealer) connect(rank, peer);
    if (!peer.dealer->send(frames_of(std::move(packet)))) ++counters.outbox_full;
  }
  for (LinkSession::Event& event : peer.session.take_events()) {
    if (auto* mail = std::get_if<Mail>(&event)) {
      sinks.mail(std::move(*mail));
    } else if (auto* up = std::get_if<LinkUp>(&event)) {
      sinks.up(*up);
    } else {
      sinks.down(std::get<LinkDown>(event));
    }
  }
  if (peer.session.next_tick() < armed_at) arm();
}

void ZmqLink::Impl::arm() {
  armed_at = kNever;
  for (const auto& [rank, peer] : peers) armed_at = std::min(armed_at, peer.session.next_tick());
  if (armed_at == kNever) return;
  timer.expires_after(std::chrono::microseconds(std::max<Micros>(0, armed_at - sinks.now())));
  timer.async_wait([weak = weak_from_this()](const boost::system::error_code& error) {
    const auto self = weak.lock();
    if (!error && self) self->on_timer();
  });
}

void ZmqLink::Impl::on_timer() {
  const Micros now = sinks.now();
  for (auto& [rank, peer] : peers) {
    if (peer.session.next_tick() > now) continue;
    peer.session.tick(now);
    flush(peer, rank);
  }
  arm();
}

ZmqLink::ZmqLink(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
ZmqLink::~ZmqLink() = default;

Result<std::unique_ptr<ZmqLink>> ZmqLink::open(boost::asio::io_context& io,
                                               const ZmqLinkOptions& options, ZmqLinkSinks sinks) {
  CHECK(sinks.mail && sinks.up && sinks.down && sinks.now);
  if (Result<void> sound = check_link_options(options); !sound.ok()) return sound.error();
  auto impl = std::make_shared<Impl>(io, options, std::move(sinks));
  if (Result<void> bound = impl->bind(); !bound.ok()) return bound.error();
  return std::unique_ptr<ZmqLink>(new ZmqLink(std::move(impl)));
}

const std::string& ZmqLink::endpoint() const {
  return impl_->endpoint;
}

Result<void> ZmqLink::set_peer(uint32_t rank, const std::string& endpoint) {
  CHECK(rank != impl_->options.rank);
  if (Result<void> sound = check_endpoint(impl_->context, endpoint); !sound.ok()) return sound;
  LinkSessionOptions options;
  options.self_rank = impl_->options.rank;
  options.self_incarnation = impl_->options.incarnation;
  options.peer_rank = rank;
  options.unacked_max = impl_->options.limits.link_unacked_max;
  options.unacked_bytes_max = impl_->options.limits.link_unacked_bytes_max;
  const Micros now = impl_->sinks.now();
  auto [at, added] = impl_->peers.try_emplace(rank, options, now);
  Impl::Peer& peer = at->second;
  if (peer.endpoint == endpoint) return {};
  impl_->disconnect(peer);
  peer.endpoint = endpoint;
  if (!added) {
    peer.session.connected(now);
    impl_->flush(peer, rank);
  }
  return {};
}

void ZmqLink::greet(uint32_t rank) {
  Impl::Peer* peer = impl_->find(rank);
  CHECK_MSG(peer != nullptr, "set_peer() comes first");
  peer->session.open(impl_->sinks.now());
  impl_->flush(*peer, rank);
}

void ZmqLink::send(Mail mail) {
  const uint32_t rank = mail.envelope.to.rank;
  Impl::Peer* peer = impl_->find(rank);
  if (!peer) {
    impl_->sinks.down(
        LinkDown{rank, 0, true, "rank " + std::to_string(rank) + " is not part of this cluster"});
    return;
  }
  peer->session.send(std::move(mail), impl_->sinks.now());
  impl_->flush(*peer, rank);
}

void ZmqLink::forget(uint32_t rank) {
  Impl::Peer* peer = impl_->find(rank);
  if (!peer) return;
  peer->session.forget();
  // What is queued for that life goes with the connection; another is made when there is need.
  impl_->disconnect(*peer);
}

size_t ZmqLink::unacked() const {
  size_t sum = 0;
  for (const auto& [rank, peer] : impl_->peers) sum += peer.session.unacked();
  return sum;
}

bool ZmqLink::up(uint32_t rank) const {
  const Impl::Peer* peer = impl_->find(rank);
  return peer != nullptr && peer->session.up();
}

ZmqLinkCounters ZmqLink::counters() const {
  ZmqLinkCounters sum = impl_->counters;
  for (const auto& [rank, peer] : impl_->peers) sum.sessions += peer.session.counters();
  return sum;
}

}  // namespace baton
