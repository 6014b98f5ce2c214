#include "launch/serve/wire_up.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include "actors/protocol/common.h"
#include "runtime/actor/wire.h"

namespace baton {

std::string pack_card(const RankCard& c) {
  std::string bytes;
  WireWriter w(bytes);
  w.array(9);
  w.unsigned_integer(c.rank);
  w.unsigned_integer(c.incarnation);
  w.text(c.host);
  w.text(c.endpoint);
  w.text(c.fingerprint);
  w.text(c.version);
  w.unsigned_integer(c.error_code);
  w.text(c.error_text);
  w.text(c.group);
  return bytes;
}

Result<RankCard> unpack_card(const std::string& bytes) {
  WireReader r(bytes, Limits{});
  RankCard c;
  if (r.enter_array() < 9) r.fail("a rank's card has 9 fields");
  c.rank = static_cast<uint32_t>(r.unsigned_integer(UINT32_MAX));
  c.incarnation = static_cast<uint32_t>(r.unsigned_integer(UINT32_MAX));
  c.host = r.text();
  c.endpoint = r.text();
  c.fingerprint = r.text();
  c.version = r.text();
  c.error_code = static_cast<uint16_t>(r.unsigned_integer(UINT16_MAX));
  c.error_text = r.text();
  c.group = r.text();
  r.leave();
  if (!r.ok()) {
    return Error{ErrorCode::bad_frame, "the ranks run different builds of Baton: " + r.error()};
  }
  return c;
}

Result<void> check_cards(const std::vector<RankCard>& cards) {
  const RankCard& first = cards.front();
  for (const RankCard& c : cards) {
    if (c.error_code == 0) continue;
    const std::string where = "rank " + std::to_string(c.rank) + " on " + c.host + ": ";
    return Error{static_cast<ErrorCode>(c.error_code), where + c.error_text};
  }
  for (const RankCard& c : cards) {
    const std::string ranks = "rank 0 and rank " + std::to_string(c.rank);
    if (c.version != first.version) {
      return Error{ErrorCode::conflict, ranks + " run different builds of Baton: " + first.version +
                                            " and " + c.version};
    }
    if (c.fingerprint != first.fingerprint) {
      return Error{ErrorCode::conflict, ranks + " opened different model files: " +
                                            first.fingerprint + " and " + c.fingerprint};
    }
  }
  return {};
}

HostShare share_of_host(const std::vector<std::string>& hosts, uint32_t rank) {
  HostShare share;
  for (uint32_t r = 1; r < hosts.size(); ++r) {
    if (hosts[r] != hosts[rank]) continue;
    if (r < rank) ++share.index;
    share.ranks.push_back(r);
  }
  return share;
}

std::string outside_address() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return "";
  std::string found;
  for (const ifaddrs* i = list; i && found.empty(); i = i->ifa_next) {
    if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || (i->ifa_flags & IFF_LOOPBACK))
      continue;
    char text[INET_ADDRSTRLEN] = {};
    const auto* address = reinterpret_cast<const sockaddr_in*>(i->ifa_addr);
    if (inet_ntop(AF_INET, &address->sin_addr, text, sizeof text)) found = text;
  }
  freeifaddrs(list);
  return found;
}

}  // namespace baton
