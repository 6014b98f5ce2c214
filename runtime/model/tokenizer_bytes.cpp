#include <utility>

#include "runtime/base/check.h"
#include "runtime/model/tokenizer.h"
#include "runtime/model/tokenizer_state.h"

namespace baton {

Tokenizer Tokenizer::of_bytes(const std::vector<std::string>& control_names) {
  constexpr int kBytes = 256;
  Result<PreTokenizer> pre = PreTokenizer::named("gpt-2");
  CHECK(pre.ok());
  auto state = std::make_unique<State>(std::move(pre).value(), 0);
  state->pre_name = "gpt-2";
  state->starts.push_back(0);
  for (int byte = 0; byte < kBytes; ++byte) {
    state->byte_token[byte] = byte;
    state->arena += static_cast<char>(byte);
    state->starts.push_back(state->arena.size());
  }
  state->types.assign(kBytes, TokenType::normal);
  for (const std::string& name : control_names) {
    CHECK(!name.empty() && !state->all_special.exact(name));
    const TokenId id = static_cast<TokenId>(state->types.size());
    state->arena += name;
    state->starts.push_back(state->arena.size());
    state->types.push_back(TokenType::control);
    state->all_special.add(name, id);
  }
  if (!control_names.empty()) {
    state->eos = kBytes;
    state->stop_ids = {kBytes};
  }
  return Tokenizer(std::move(state));
}

}  // namespace baton
