#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "actors/protocol/gateway.h"

namespace baton {

// What a request asks for, as a number: equal for equal requests, whoever submits them and however
// the answer is to be delivered (job number, streaming, deadline and the key itself do not count).
struct Fingerprint {
  uint64_t low = 0;
  uint64_t high = 0;
  friend constexpr auto operator<=>(const Fingerprint&, const Fingerprint&) = default;
};

Fingerprint fingerprint_of(const Submit& submit);

// Which request an idempotency key stands for, per tenant. Owned by the gateway; a key lives as
// long as its request or its result is kept.
class IdempotencyKeys {
 public:
  std::optional<RequestId> find(const std::string& tenant, const std::string& key) const;
  // Precondition: the key is not empty and not there yet.
  void add(const std::string& tenant, const std::string& key, RequestId request);
  // Forgets the key if it stands for this request.
  void remove(const std::string& tenant, const std::string& key, RequestId request);
  size_t size() const { return requests_.size(); }

 private:
  std::map<std::pair<std::string, std::string>, RequestId> requests_;
};

}  // namespace baton
