#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "runtime/actor/control_link.h"
#include "runtime/base/limits.h"
#include "runtime/base/time.h"
#include "transport/control/link_packet.h"

namespace baton {

struct LinkSessionOptions {
  uint32_t self_rank = 0;
  uint32_t self_incarnation = 1;  // of this process; greater than that of any earlier life
  uint32_t peer_rank = 0;
  size_t unacked_max = Limits{}.link_unacked_max;
  size_t unacked_bytes_max = Limits{}.link_unacked_bytes_max;
  size_t reorder_max = 256;               // mail held behind a gap
  size_t resend_burst = 64;               // packets that one timeout repeats
  Micros resend_us = 250 * kMillisecond;  // doubles up to resend_max_us without progress
  Micros resend_max_us = 2 * kSecond;
  Micros ack_delay_us = 20 * kMillisecond;  // for mail that may carry the acknowledgement
  size_t ack_every = 64;                    // mail that is acknowledged at once
  Micros give_up_us = 20 * kSecond;         // without progress while mail waits
};

struct LinkCounters {
  uint64_t sent = 0;        // mail, first transmissions
  uint64_t resent = 0;      // mail, repeated
  uint64_t delivered = 0;   // mail
  uint64_t duplicates = 0;  // mail that had arrived before
  uint64_t reordered = 0;   // mail that had to wait for earlier mail
  uint64_t overrun = 0;     // mail too far ahead to be held; it is sent again
  uint64_t stale = 0;       // packets of, or for, a life that has ended
  uint64_t malformed = 0;   // packets that no peer of ours would send
  uint64_t lost = 0;        // mail given up with its session; LinkDown said so
  uint64_t sessions = 0;    // made

  LinkCounters& operator+=(const LinkCounters& other);
};

// One end of a reliable, ordered session between two lives of two ranks, over a network that may
// lose, repeat, delay and reorder packets. Within a session, mail arrives once and in order.
// A session is a pair of lives, confirmed by both before any mail travels, so that no packet of an
// earlier session is ever taken for one of this. It ends when the peer starts over, when resending
// gives up, or by forget(): LinkDown says so, unacknowledged mail is dropped and counted, and this
// end goes on under its next generation. Pure: no socket, no clock; its owner passes the time in
// and carries packets out. Owned by a link (or the simulator's network), on its thread.
class LinkSession {
 public:
  using Event = std::variant<Mail, LinkUp, LinkDown>;

  LinkSession(const LinkSessionOptions& options, Micros now);

  // Greets the peer until it answers, also with nothing to say.
  void open(Micros now);
  // Queues mail, in order. When the queue is full the session ends, this mail included.
  void send(Mail mail, Micros now);
  void receive(LinkPacket packet, Micros now);
  // Ends the session without an event: the caller knows. Silent until there is mail again.
  void forget();

  // The path below is (again) usable: what is unacknowledged goes out at once.
  void connected(Micros now);
  // The path below has broken: a LinkDown that is a hint. The session lives on until give_up_us.
  void disconnected(const std::string& reason);

  // Sends what is due. Call at next_tick() or later.
  void tick(Micros now);
  Micros next_tick() const;  // kNever when nothing is pending

  // Packets to put on the network, and what the actors of this rank are to hear, both in order.
  std::vector<LinkPacket> take_packets();
  std::vector<Event> take_events();

  bool up() const { return confirmed_; }
  LinkLife life() const { return self_; }
  size_t unacked() const { return pending_.size(); }
  const LinkCounters& counters() const { return counters_; }

 private:
  struct Queued {
    Mail mail;
    Micros queued_at = 0;
  };

  LinkPacket packet_to_peer() const;
  bool accept_lives(const LinkPacket& packet, Micros now);
  void confirm(Micros now);
  void take_ack(uint64_t ack, Micros now);
  void take_in(Mail mail, Micros now);
  void deliver(Mail mail);
  void greet(Micros now);
  void acknowledge();
  void transmit(const Queued& queued, Micros now);
  void transmit_unsent(Micros now);
  void resend(size_t count, Micros now);
  void end(bool certain, const std::string& reason);
  void start_over();
  void schedule_resend(Micros now);

  LinkSessionOptions options_;
  LinkLife self_;
  LinkLife peer_;           // unknown: no life of the peer has been heard of
  bool confirmed_ = false;  // the peer has answered this very pair of lives
  bool path_up_ = true;
  bool hinted_down_ = false;  // a LinkDown was reported for a session that lives on
  bool open_ = false;

  // Outgoing: pending_[i] has link_seq first_seq_ + i; the first sent_ have been transmitted.
  std::deque<Queued> pending_;
  size_t pending_bytes_ = 0;
  uint64_t first_seq_ = 1;
  size_t sent_ = 0;

  // Incoming: all up to arrived_ were delivered; held_ are behind a gap.
  uint64_t arrived_ = 0;
  uint64_t acked_ = 0;  // the last acknowledgement that was sent
  std::map<uint64_t, Mail> held_;

  Micros backoff_us_;
  Micros resend_at_ = kNever;
  Micros greet_at_ = kNever;
  Micros ack_at_ = kNever;
  Micros progress_at_;  // give_up_us counts from here while mail waits

  std::vector<LinkPacket> packets_;
  std::vector<Event> events_;
  LinkCounters counters_;
};

}  // namespace baton
