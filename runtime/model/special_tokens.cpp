#include "runtime/model/special_tokens.h"

#include "runtime/base/check.h"

namespace baton {
namespace {

std::uint64_t edge(std::uint32_t node, char byte) {
  return std::uint64_t{node} << 8 | static_cast<unsigned char>(byte);
}

}  // namespace

void SpecialTokens::add(std::string_view text, TokenId id) {
  CHECK(!text.empty());
  starts_[static_cast<unsigned char>(text[0])] = true;
  std::uint32_t node = 0;
  for (const char byte : text) {
    const auto [found, added] =
        edges_.emplace(edge(node, byte), static_cast<std::uint32_t>(nodes_.size()));
    if (added) nodes_.emplace_back();
    node = found->second;
  }
  CHECK(nodes_[node].id < 0);
  nodes_[node].id = id;
}

std::optional<std::uint32_t> SpecialTokens::child(std::uint32_t node, char byte) const {
  const auto found = edges_.find(edge(node, byte));
  if (found == edges_.end()) return std::nullopt;
  return found->second;
}

std::optional<TokenId> SpecialTokens::exact(std::string_view text) const {
  std::uint32_t node = 0;
  for (const char byte : text) {
    const std::optional<std::uint32_t> next = child(node, byte);
    if (!next) return std::nullopt;
    node = *next;
  }
  if (nodes_[node].id < 0) return std::nullopt;
  return nodes_[node].id;
}

std::optional<SpecialSpan> SpecialTokens::find(std::string_view text, std::size_t at) const {
  for (; at < text.size(); ++at) {
    if (!starts_[static_cast<unsigned char>(text[at])]) continue;
    std::optional<SpecialSpan> longest;
    std::uint32_t node = 0;
    for (std::size_t end = at; end < text.size();) {
      const std::optional<std::uint32_t> next = child(node, text[end]);
      if (!next) break;
      node = *next;
      ++end;
      if (nodes_[node].id >= 0) longest = SpecialSpan{at, end - at, nodes_[node].id};
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

}  // namespace baton
