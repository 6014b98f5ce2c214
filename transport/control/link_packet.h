#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/actor/message.h"
#include "runtime/base/limits.h"
#include "runtime/base/result.h"

namespace baton {

// Names one end of one session. `incarnation` is the life of the process and rises with each
// restart of a rank; `generation` rises each time the process starts a session with that peer over.
// Generation 0 means "not known yet".
struct LinkLife {
  uint32_t incarnation = 0;
  uint32_t generation = 0;
  bool known() const { return generation != 0; }
  friend constexpr auto operator<=>(const LinkLife&, const LinkLife&) = default;
};

// What travels below a session; the network may lose, repeat, delay and reorder it. The position of
// `mail` in its session is mail->envelope.link_seq, from 1.
struct LinkPacket {
  uint32_t source_rank = 0;
  uint32_t target_rank = 0;
  LinkLife source;
  LinkLife target;    // the end that it is meant for; unknown only in a first greeting
  uint64_t ack = 0;   // all mail of the target up to here has arrived
  bool asks = false;  // the sender has not heard from this session yet: answer
  std::optional<Mail> mail;
};

// The first frame of a packet on a socket: a msgpack array of all but the mail, whose envelope and
// body are the second and third frames.
std::string encode_link_header(const LinkPacket& packet);
// Fails with bad_frame. `mail` of the result is empty.
Result<LinkPacket> decode_link_header(std::string_view bytes, const Limits& limits);

}  // namespace baton
