#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/result.h"

namespace baton {

// What every rank tells all others once, over MPI, before anything is served.
struct RankCard {
  uint32_t rank = 0;
  uint32_t incarnation = 0;
  std::string host;
  std::string endpoint;     // of its control link; empty when it failed
  std::string fingerprint;  // of its model file
  std::string version;      // of its binary
  uint16_t error_code = 0;  // why it cannot take part
  std::string error_text;
  std::string group;  // of the first rank of an instance of several: where the others join it
};

std::string pack_card(const RankCard& card);
Result<RankCard> unpack_card(const std::string& bytes);

// The first reason why these ranks cannot form a cluster: one of them failed, models or binaries
// differ (naming both). Success if they can.
Result<void> check_cards(const std::vector<RankCard>& cards);

// The engine ranks that share the host of `rank`, in order.
struct HostShare {
  std::vector<uint32_t> ranks;
  uint32_t index = 0;  // of `rank` among them
};
HostShare share_of_host(const std::vector<std::string>& hosts, uint32_t rank);

// An address of this host that other hosts can reach: the first IPv4 one that is not loopback.
// Empty if there is none.
std::string outside_address();

}  // namespace baton
