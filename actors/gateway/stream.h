#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "actors/gateway/stop_strings.h"
#include "actors/protocol/gateway.h"
#include "runtime/model/detokenizer.h"

namespace baton {

// What became of an entry at the commit point.
enum class Commit {
  committed,  // it, and what waited behind it, is part of the stream now
  held,       // something before it is missing, or its epoch is not known here yet
  dropped,    // ahead, and no room to hold it; it must be sent again
  duplicate,  // committed before
  stale,      // of an epoch that was fenced off
  ended,      // of a choice that has ended
  invalid,    // no such choice or token: a defect of its sender
};

struct StreamOptions {
  const Tokenizer* tokenizer = nullptr;  // outlives the stream
  std::vector<std::string> stop;         // stop strings
  uint32_t choices = 1;
  uint32_t min_tokens = 0;  // stop strings count from the text of the next token on
  size_t held_max = 0;      // entries held per choice
  bool logprobs = false;    // keep the tokens' log-probabilities
  bool top = false;         // and those of the best alternatives
};

// The commit point of one request: owns what its client gets. The gateway hands it every entry that
// arrives; it takes them in order, each once, of the current epoch only, and turns them into text.
// Pure: no clock, no sending.
class Stream {
 public:
  explicit Stream(const StreamOptions& options);

  // `sender` is remembered as the one to ask when something before the entry is missing.
  Commit accept(const TokenEntry& entry, const ActorId& sender);

  // Fences off every earlier epoch and takes what was held for this one. False: it is no later one.
  bool advance(Epoch epoch);
  Epoch epoch() const { return epoch_; }

  uint32_t choices() const { return static_cast<uint32_t>(choices_.size()); }
  // Tokens committed, which is also the seq of the next one.
  uint32_t committed(uint32_t choice) const;
  uint32_t committed_total() const;
  bool finished(uint32_t choice) const;
  bool finished() const;  // all choices
  // Ended by a stop string, of which its worker does not know.
  bool stopped_by_text(uint32_t choice) const;
  // The common outcome: error if any ended so, stop if all did, otherwise length.
  Finish outcome() const;
  std::vector<std::vector<TokenId>> committed_ids() const;  // per choice, for Frozen

  // True while entries from `committed(choice)` on are known to exist but are not here.
  bool has_gap(uint32_t choice) const;
  // Who holds what comes next: the sender of an entry that it keeps (decode), or of one that was
  // not its epoch's first; otherwise that of another choice, because all of them run in one place.
  // Rank kClientRank: nobody known in this epoch.
  const ActorId& holder(uint32_t choice) const;

  // Tokens [from, to) of a choice as they go to the client. The texts of neighbouring stretches
  // join to the whole text, however it is cut. `to` at the end of a finished choice brings the text
  // that was held back for stop strings. Precondition: from <= to <= committed(choice).
  ClientTokens stretch(uint32_t choice, uint32_t from, uint32_t to) const;
  ChoiceResult result(uint32_t choice) const;
  // Memory that the committed tokens take, roughly.
  size_t bytes() const;

 private:
  struct Held {
    TokenEntry entry;
    ActorId sender;
  };
  struct Choice {
    Detokenizer detokenizer;
    StopStrings stops;
    ChoiceResult result;
    std::vector<size_t> text_ends;    // per token: bytes of text once it was committed
    uint32_t epoch_first = 0;         // tokens committed before the current epoch
    std::pair<Epoch, uint32_t> seen;  // one past the last entry seen, of its epoch
    std::map<std::pair<Epoch, uint32_t>, Held> held;
    ActorId holder{kClientRank, 0, 0};
  };

  Commit hold(Choice& choice, const TokenEntry& entry, const ActorId& sender);
  static void note_holder(Choice& choice, const TokenEntry& entry, const ActorId& sender);
  void commit(Choice& choice, const TokenEntry& entry, const ActorId& sender);
  void add_text(Choice& choice, const TokenEntry& entry);
  void end(Choice& choice, Finish finish);
  void drain(Choice& choice);
  uint32_t next(const Choice& choice) const {
    return static_cast<uint32_t>(choice.result.ids.size());
  }

  StreamOptions options_;
  Epoch epoch_;
  std::vector<Choice> choices_;
};

}  // namespace baton
