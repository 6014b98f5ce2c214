#include "launch/sim/checkers/cache_checker.h"

#include <algorithm>

#include "actors/protocol/decode.h"
#include "actors/protocol/prefill.h"
#include "runtime/actor/wire.h"

namespace baton {

void CacheChecker::admitted(RequestId request, const Admit& admit) {
  sequences_.try_emplace(request, Sequence{admit.tenant, admit.ids, {}});
}

void CacheChecker::posted(const Mail& mail) {
  const Envelope& e = mail.envelope;
  const std::string where = " on rank " + std::to_string(e.from.rank);
  if (e.kind == Reserved::kind) {
    const auto message = decode_body<Reserved>(mail.body, Limits{});
    if (message.ok()) check(e.request, e.epoch, message->hit_tokens, "decode" + where);
  } else if (e.kind == PrefillDone::kind) {
    const auto message = decode_body<PrefillDone>(mail.body, Limits{});
    if (message.ok()) check(e.request, e.epoch, message->usage.cached_tokens, "prefill" + where);
  } else if (e.kind == Tokens::kind) {
    const auto message = decode_body<Tokens>(mail.body, Limits{});
    if (!message.ok()) return;
    for (const TokenEntry& entry : message->entries) learn(entry);
  }
}

// Every life of a request yields the same tokens, so the first that says one is as good as any.
void CacheChecker::learn(const TokenEntry& entry) {
  const auto found = sequences_.find(entry.request);
  if (found == sequences_.end() || !entry.has_token) return;
  std::vector<TokenId>& output = found->second.output[entry.choice];
  if (output.size() == entry.seq) output.push_back(entry.id);
}

std::vector<std::vector<TokenId>> CacheChecker::Sequence::wholes() const {
  if (output.empty()) return {prompt};
  std::vector<std::vector<TokenId>> all;
  for (const auto& [choice, tokens] : output) {
    all.push_back(prompt);
    all.back().insert(all.back().end(), tokens.begin(), tokens.end());
  }
  return all;
}

void CacheChecker::check(RequestId request, Epoch epoch, uint64_t hit, const std::string& where) {
  const auto found = sequences_.find(request);
  if (found == sequences_.end() || hit == 0) return;
  uint64_t most = 0;
  uint64_t length = 0;
  for (const std::vector<TokenId>& mine : found->second.wholes()) {
    length = std::max<uint64_t>(length, mine.size());
    for (const auto& [id, other] : sequences_) {
      if (other.tenant != found->second.tenant || (id == request && epoch == Epoch{1})) continue;
      for (const std::vector<TokenId>& theirs : other.wholes()) {
        const auto [end, unused] =
            std::mismatch(mine.begin(), mine.end(), theirs.begin(), theirs.end());
        most = std::max<uint64_t>(most, static_cast<uint64_t>(end - mine.begin()));
      }
    }
  }
  if (hit <= most && hit < length) return;
  findings_.add("cache", where + " claims to have " + std::to_string(hit) +
                             " positions of request " + std::to_string(request.value) +
                             ", of which its tenant has had " + std::to_string(most) +
                             " computed before");
}

}  // namespace baton
