#include "transport/control/link_session.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace baton {
namespace {

// What one queued mail counts for: its bytes and what surrounds them.
size_t mail_bytes(const Mail& mail) {
  return mail.body.size() + mail.envelope.trace.size() + sizeof(Mail);
}

}  // namespace

LinkCounters& LinkCounters::operator+=(const LinkCounters& other) {
  sent += other.sent;
  resent += other.resent;
  delivered += other.delivered;
  duplicates += other.duplicates;
  reordered += other.reordered;
  overrun += other.overrun;
  stale += other.stale;
  malformed += other.malformed;
  lost += other.lost;
  sessions += other.sessions;
  return *this;
}

LinkSession::LinkSession(const LinkSessionOptions& options, Micros now)
    : options_(options),
      self_{options.self_incarnation, 1},
      backoff_us_(options.resend_us),
      progress_at_(now) {
  CHECK(options.self_rank != options.peer_rank);
  CHECK(options.unacked_max > 0 && options.resend_burst > 0 && options.resend_us > 0);
}

void LinkSession::open(Micros now) {
  open_ = true;
  if (!confirmed_) greet(now);
}

void LinkSession::send(Mail mail, Micros now) {
  const size_t bytes = mail_bytes(mail);
  if (pending_.size() >= options_.unacked_max ||
      pending_bytes_ + bytes > options_.unacked_bytes_max) {
    ++counters_.lost;
    end(false, "the queue to rank " + std::to_string(options_.peer_rank) +
                   " is full: " + std::to_string(pending_.size()) + " messages, " +
                   std::to_string(pending_bytes_) + " bytes wait for it");
    greet(now);  // so that the peer learns of it
    return;
  }
  if (pending_.empty()) progress_at_ = now;
  mail.envelope.link_seq = first_seq_ + pending_.size();
  pending_bytes_ += bytes;
  pending_.push_back({std::move(mail), now});
  if (confirmed_) {
    transmit_unsent(now);
  } else if (greet_at_ == kNever) {
    greet(now);
  }
}

void LinkSession::receive(LinkPacket packet, Micros now) {
  const bool ours = packet.source_rank == options_.peer_rank &&
                    packet.target_rank == options_.self_rank && packet.source.known();
  if (!ours) {
    ++counters_.malformed;
    return;
  }
  if (!accept_lives(packet, now)) return;
  if (packet.ack >= first_seq_ + sent_) {
    ++counters_.malformed;  // acknowledges what was never sent
    return;
  }
  take_ack(packet.ack, now);
  if (packet.mail) take_in(std::move(*packet.mail), now);
  if (packet.asks) acknowledge();
}

// True if the packet belongs to the session of exactly these two lives. Otherwise moves the
// handshake on: each end adopts the other's latest life, and a packet that names both lives
// confirms the pair.
bool LinkSession::accept_lives(const LinkPacket& packet, Micros now) {
  if (packet.target.known() && packet.target != self_) {
    ++counters_.stale;  // for an earlier session of this end: tell the peer which one is current
    packets_.push_back(packet_to_peer());
    packets_.back().target = LinkLife{};
    packets_.back().ack = 0;
    packets_.back().asks = true;
    return false;
  }
  if (packet.source < peer_) {
    ++counters_.stale;
    return false;
  }
  if (packet.source > peer_) {
    if (confirmed_) {
      const bool restarted = packet.source.incarnation != peer_.incarnation;
      end(restarted, restarted ? "the peer's process was replaced by a later one"
                               : "the peer ended the session and starts over");
    }
    peer_ = packet.source;
  }
  if (packet.target != self_) {  // a greeting (again), or the session of before end()
    if (!confirmed_) {
      greet(now);
    } else if (packet.asks) {
      acknowledge();
    }
    return false;
  }
  if (!confirmed_) confirm(now);
  if (hinted_down_ && path_up_) {
    hinted_down_ = false;
    events_.emplace_back(LinkUp{options_.peer_rank, peer_.incarnation});
  }
  return true;
}

void LinkSession::confirm(Micros now) {
  confirmed_ = true;
  ++counters_.sessions;
  hinted_down_ = false;
  greet_at_ = kNever;
  progress_at_ = now;
  events_.emplace_back(LinkUp{options_.peer_rank, peer_.incarnation});
  transmit_unsent(now);
}

void LinkSession::take_ack(uint64_t ack, Micros now) {
  if (ack < first_seq_) return;
  while (first_seq_ <= ack) {
    pending_bytes_ -= mail_bytes(pending_.front().mail);
    pending_.pop_front();
    ++first_seq_;
    --sent_;
  }
  progress_at_ = now;
  backoff_us_ = options_.resend_us;
  schedule_resend(now);
}

void LinkSession::take_in(Mail mail, Micros now) {
  const uint64_t seq = mail.envelope.link_seq;
  if (seq == 0) {
    ++counters_.malformed;
    return;
  }
  if (seq <= arrived_ || held_.contains(seq)) {
    ++counters_.duplicates;
    ack_at_ = now;  // the peer may have missed the acknowledgement
    return;
  }
  if (seq > arrived_ + 1) {
    if (seq - arrived_ > options_.reorder_max) {
      ++counters_.overrun;
    } else {
      ++counters_.reordered;
      held_.emplace(seq, std::move(mail));
    }
    return;
  }
  deliver(std::move(mail));
  for (auto next = held_.begin(); next != held_.end() && next->first == arrived_ + 1;) {
    deliver(std::move(next->second));
    next = held_.erase(next);
  }
  if (arrived_ - acked_ >= options_.ack_every) {
    acknowledge();
  } else {
    ack_at_ = std::min(ack_at_, now + options_.ack_delay_us);
  }
}

void LinkSession::deliver(Mail mail) {
  ++arrived_;
  ++counters_.delivered;
  events_.emplace_back(std::move(mail));
}

void LinkSession::forget() {
  counters_.lost += pending_.size();
  open_ = false;
  path_up_ = true;  // of whatever life comes next
  start_over();
}

void LinkSession::connected(Micros now) {
  path_up_ = true;
  backoff_us_ = options_.resend_us;
  if (confirmed_) {
    resend(sent_, now);
    transmit_unsent(now);
    acknowledge();
    packets_.back().asks = hinted_down_;  // the link is up again when the peer has answered
  } else if (open_ || !pending_.empty()) {
    greet(now);
  }
}

void LinkSession::disconnected(const std::string& reason) {
  path_up_ = false;
  resend_at_ = greet_at_ = kNever;  // connected() starts them again
  if (!confirmed_ || hinted_down_) return;
  hinted_down_ = true;
  events_.emplace_back(LinkDown{options_.peer_rank, peer_.incarnation, true, reason});
}

void LinkSession::tick(Micros now) {
  if (!pending_.empty() && now - progress_at_ >= options_.give_up_us) {
    end(true, "no acknowledgement from rank " + std::to_string(options_.peer_rank) + " for " +
                  std::to_string((now - progress_at_) / kMillisecond) + " ms");
    greet(now);
    return;
  }
  if (greet_at_ <= now) {
    greet(now);
    backoff_us_ = std::min(backoff_us_ * 2, options_.resend_max_us);
  }
  if (resend_at_ <= now) {
    backoff_us_ = std::min(backoff_us_ * 2, options_.resend_max_us);
    resend(std::min(sent_, options_.resend_burst), now);
  }
  if (ack_at_ <= now) acknowledge();
}

Micros LinkSession::next_tick() const {
  const Micros give_up_at = pending_.empty() ? kNever : progress_at_ + options_.give_up_us;
  return std::min({resend_at_, greet_at_, ack_at_, give_up_at});
}

std::vector<LinkPacket> LinkSession::take_packets() {
  return std::exchange(packets_, {});
}

std::vector<LinkSession::Event> LinkSession::take_events() {
  return std::exchange(events_, {});
}

LinkPacket LinkSession::packet_to_peer() const {
  LinkPacket packet;
  packet.source_rank = options_.self_rank;
  packet.target_rank = options_.peer_rank;
  packet.source = self_;
  packet.target = peer_;
  packet.ack = arrived_;
  return packet;
}

// Repeated only while there is a reason to: mail, or open().
void LinkSession::greet(Micros now) {
  greet_at_ = kNever;
  if (!path_up_) return;
  packets_.push_back(packet_to_peer());
  packets_.back().asks = true;
  if (open_ || !pending_.empty()) greet_at_ = now + backoff_us_;
}

void LinkSession::acknowledge() {
  packets_.push_back(packet_to_peer());
  acked_ = arrived_;
  ack_at_ = kNever;
}

void LinkSession::transmit(const Queued& queued, Micros now) {
  LinkPacket packet = packet_to_peer();
  packet.mail = queued.mail;
  Envelope& envelope = packet.mail->envelope;
  envelope.link_ack = arrived_;
  if (envelope.remaining_us != kNever) envelope.remaining_us -= now - queued.queued_at;
  packets_.push_back(std::move(packet));
  acked_ = arrived_;
  ack_at_ = kNever;
}

void LinkSession::transmit_unsent(Micros now) {
  if (!path_up_ || sent_ == pending_.size()) return;
  const bool idle = sent_ == 0;
  for (; sent_ < pending_.size(); ++sent_, ++counters_.sent) transmit(pending_[sent_], now);
  if (idle) schedule_resend(now);
}

void LinkSession::resend(size_t count, Micros now) {
  for (size_t i = 0; i < count; ++i, ++counters_.resent) transmit(pending_[i], now);
  schedule_resend(now);
}

void LinkSession::schedule_resend(Micros now) {
  resend_at_ = sent_ > 0 && path_up_ ? now + backoff_us_ : kNever;
}

void LinkSession::end(bool certain, const std::string& reason) {
  counters_.lost += pending_.size();
  events_.emplace_back(LinkDown{options_.peer_rank, peer_.incarnation, certain, reason});
  start_over();
}

// Nothing of the old session is left; the next one is made under the next generation, so that no
// packet of the old one can be taken for one of the new.
void LinkSession::start_over() {
  ++self_.generation;
  peer_ = LinkLife{};
  confirmed_ = false;
  hinted_down_ = false;
  pending_.clear();
  pending_bytes_ = 0;
  first_seq_ = 1;
  sent_ = 0;
  arrived_ = 0;
  acked_ = 0;
  held_.clear();
  backoff_us_ = options_.resend_us;
  resend_at_ = greet_at_ = ack_at_ = kNever;
}

}  // namespace baton
