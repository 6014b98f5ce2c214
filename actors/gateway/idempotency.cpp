#include "actors/gateway/idempotency.h"

#include "runtime/actor/wire.h"
#include "runtime/base/check.h"
#include "runtime/base/hash.h"

namespace baton {
namespace {

constexpr uint64_t kSecondSeed = 0x6261746F6E;

}  // namespace

Fingerprint fingerprint_of(const Submit& submit) {
  Submit content = submit;
  content.job = 0;
  content.stream = true;
  content.deadline_ms = 0;
  content.idempotency_key.clear();
  content.group.clear();
  const std::string bytes = encode_body(content);
  return {hash64(bytes.data(), bytes.size()), hash64(bytes.data(), bytes.size(), kSecondSeed)};
}

std::optional<RequestId> IdempotencyKeys::find(const std::string& tenant,
                                               const std::string& key) const {
  const auto found = requests_.find({tenant, key});
  if (found == requests_.end()) return std::nullopt;
  return found->second;
}

void IdempotencyKeys::add(const std::string& tenant, const std::string& key, RequestId request) {
  CHECK(!key.empty());
  const bool is_new = requests_.emplace(std::pair(tenant, key), request).second;
  CHECK(is_new);
}

void IdempotencyKeys::remove(const std::string& tenant, const std::string& key, RequestId request) {
  const auto found = requests_.find({tenant, key});
  if (found != requests_.end() && found->second == request) requests_.erase(found);
}

}  // namespace baton
