#include "runtime/layout/prefix_hash.h"

#include "runtime/base/check.h"
#include "runtime/base/hash.h"

namespace baton {
namespace {

void append(std::string& bytes, uint64_t value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

PrefixHash prefix_root(const PrefixScope& scope) {
  std::string bytes;
  for (const std::string& text : {scope.tenant, scope.adapter}) {
    append(bytes, text.size());
    bytes += text;
  }
  append(bytes, scope.weights_version);
  append(bytes, scope.source_numerics);
  append(bytes, scope.target_numerics);
  const Hash128 hash = hash128(bytes.data(), bytes.size(), scope.secret);
  return {hash.low, hash.high};
}

PrefixHash prefix_next(const PrefixHash& before, std::span<const TokenId> block) {
  const Hash128 tokens = hash128(block.data(), block.size_bytes(), before.high);
  const uint64_t parts[] = {before.low, before.high, tokens.low, tokens.high};
  const Hash128 hash = hash128(parts, sizeof parts);
  return {hash.low, hash.high};
}

std::vector<PrefixHash> prefix_chain(const PrefixHash& root, std::span<const TokenId> tokens,
                                     uint32_t block_tokens) {
  CHECK(block_tokens > 0);
  std::vector<PrefixHash> chain;
  chain.reserve(tokens.size() / block_tokens);
  PrefixHash last = root;
  for (; tokens.size() >= block_tokens; tokens = tokens.subspan(block_tokens)) {
    last = prefix_next(last, tokens.first(block_tokens));
    chain.push_back(last);
  }
  return chain;
}

}  // namespace baton
