#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/model/tokenizer.h"

namespace baton {

// Finds the strings of special tokens in text. Immutable once filled, then thread-safe.
class SpecialTokens {
 public:
  // Precondition: text is not empty and was not added before.
  void add(std::string_view text, TokenId id);
  bool empty() const { return nodes_.size() == 1; }
  std::optional<TokenId> exact(std::string_view text) const;
  // The first place, from `at` on, where one starts, and the longest that starts there.
  std::optional<SpecialSpan> find(std::string_view text, std::size_t at) const;

 private:
  struct Node {
    TokenId id = -1;  // of the token that ends here
  };

  std::optional<std::uint32_t> child(std::uint32_t node, char byte) const;

  bool starts_[256] = {};                                   // bytes with which a token starts
  std::vector<Node> nodes_ = std::vector<Node>(1);          // a trie; the root is 0
  std::unordered_map<std::uint64_t, std::uint32_t> edges_;  // node << 8 | byte
};

}  // namespace baton
