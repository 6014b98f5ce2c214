#include "transport/sim/sim_link.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace baton {
namespace {

constexpr Micros kDisconnectUs = 2 * kMillisecond;  // until a peer's socket tells

}  // namespace

// ---------------------------------------------------------------- the switch

void SimSwitch::join(SimLink& link) {
  links_[link.rank()] = &link;
  for (const auto& [rank, other] : links_) {
    if (rank == link.rank()) continue;
    world_.at_rank(rank, kDisconnectUs, [this, rank = rank, joined = link.rank()] {
      if (SimLink* at = find(rank)) at->path_changed(joined, true);
    });
  }
}

void SimSwitch::leave(SimLink& link) {
  links_.erase(link.rank());
  for (const auto& [rank, other] : links_) {
    if (network_.is_cut(link.rank(), rank)) continue;  // not even the end of a socket gets through
    world_.at_rank(rank, kDisconnectUs, [this, rank = rank, left = link.rank()] {
      SimLink* at = find(rank);
      if (at && !find(left)) at->path_changed(left, false);
    });
  }
}

void SimSwitch::carry(const LinkPacket& packet) {
  network_.send(packet.source_rank, packet.target_rank, [this, packet] {
    if (SimLink* target = find(packet.target_rank)) target->receive(packet);
  });
}

SimLink* SimSwitch::find(uint32_t rank) const {
  const auto found = links_.find(rank);
  return found == links_.end() ? nullptr : found->second;
}

// ---------------------------------------------------------------- a process's links

SimLink::SimLink(SimSwitch& connections, SimHost& host) : switch_(connections), host_(host) {
  switch_.join(*this);
}

SimLink::~SimLink() {
  switch_.leave(*this);
}

SimLink::Peer& SimLink::peer(uint32_t rank) {
  Peer& peer = peers_[rank];
  if (!peer.session) {
    LinkSessionOptions options;
    options.self_rank = host_.rank();
    options.self_incarnation = host_.life();
    options.peer_rank = rank;
    peer.session = std::make_unique<LinkSession>(options, host_.world().now());
  }
  return peer;
}

void SimLink::send(Mail mail) {
  const uint32_t rank = mail.envelope.to.rank;
  Peer& to = peer(rank);
  to.session->send(std::move(mail), host_.world().now());
  flush(rank, to);
}

void SimLink::forget(uint32_t rank) {
  Peer& gone = peer(rank);
  gone.session->forget();
  flush(rank, gone);
}

void SimLink::receive(const LinkPacket& packet) {
  Peer& from = peer(packet.source_rank);
  from.session->receive(packet, host_.world().now());
  flush(packet.source_rank, from);
}

void SimLink::path_changed(uint32_t rank, bool up) {
  Peer& changed = peer(rank);
  if (up) {
    changed.session->connected(host_.world().now());
  } else {
    changed.session->disconnected("the peer's socket was closed");
  }
  flush(rank, changed);
}

void SimLink::flush(uint32_t rank, Peer& peer) {
  for (const LinkPacket& packet : peer.session->take_packets()) switch_.carry(packet);
  for (LinkSession::Event& event : peer.session->take_events()) {
    if (auto* mail = std::get_if<Mail>(&event)) {
      host_.post(std::move(*mail));
    } else if (const auto* up = std::get_if<LinkUp>(&event)) {
      host_.tell_all(*up);
    } else {
      host_.tell_all(std::get<LinkDown>(event));
    }
  }
  const Micros due = peer.session->next_tick();
  if (due == kNever || due >= peer.tick_at) return;
  peer.tick_at = due;
  const Micros now = host_.world().now();
  host_.later(std::max<Micros>(due - now, 0), [this, rank] {
    Peer& at = peers_.at(rank);
    at.tick_at = kNever;
    if (at.session->next_tick() <= host_.world().now()) at.session->tick(host_.world().now());
    flush(rank, at);
  });
}

LinkCounters SimLink::counters() const {
  LinkCounters sum;
  for (const auto& [rank, peer] : peers_) sum += peer.session->counters();
  return sum;
}

}  // namespace baton
