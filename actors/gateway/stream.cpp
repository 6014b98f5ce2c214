#include "actors/gateway/stream.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace baton {

Stream::Stream(const StreamOptions& options) : options_(options) {
  CHECK(options_.tokenizer != nullptr);
  for (uint32_t i = 0; i < options_.choices; ++i) {
    choices_.push_back({Detokenizer(*options_.tokenizer, true),
                        StopStrings(options_.stop),
                        {},
                        {},
                        0,
                        {},
                        {},
                        {kClientRank, 0, 0}});
  }
}

Commit Stream::accept(const TokenEntry& entry, const ActorId& sender) {
  if (entry.choice >= choices_.size()) return Commit::invalid;
  if (entry.has_token && !options_.tokenizer->contains(entry.id)) return Commit::invalid;
  if (!entry.has_token && entry.finish == Finish::none) return Commit::invalid;
  // A worker that was told to stop says so; how the request ends is the scheduler's word.
  if (entry.epoch < epoch_ || entry.finish == Finish::cancelled) return Commit::stale;
  Choice& choice = choices_[entry.choice];
  if (choice.result.finish != Finish::none) return Commit::ended;
  if (entry.epoch == epoch_ && entry.seq < next(choice)) return Commit::duplicate;
  if (entry.epoch == epoch_) note_holder(choice, entry, sender);
  if (entry.epoch > epoch_ || entry.seq > next(choice)) return hold(choice, entry, sender);
  commit(choice, entry, sender);
  drain(choice);
  return Commit::committed;
}

void Stream::note_holder(Choice& choice, const TokenEntry& entry, const ActorId& sender) {
  if (entry.kept || entry.seq > choice.epoch_first) choice.holder = sender;
}

Commit Stream::hold(Choice& choice, const TokenEntry& entry, const ActorId& sender) {
  choice.seen = std::max(choice.seen, std::pair(entry.epoch, entry.seq + 1));
  const std::pair key(entry.epoch, entry.seq);
  if (choice.held.contains(key)) return Commit::duplicate;
  if (choice.held.size() >= options_.held_max) return Commit::dropped;
  choice.held.emplace(key, Held{entry, sender});
  return Commit::held;
}

void Stream::commit(Choice& choice, const TokenEntry& entry, const ActorId& sender) {
  note_holder(choice, entry, sender);
  if (entry.has_token) {
    choice.result.ids.push_back(entry.id);
    if (options_.logprobs) choice.result.logprobs.push_back(entry.logprob);
    if (options_.top) choice.result.top.push_back(entry.top);
    add_text(choice, entry);
  }
  if (choice.stops.matched()) {
    end(choice, Finish::stop);
  } else if (entry.finish != Finish::none) {
    end(choice, entry.finish);
  }
  // The text that was held back came out with the last token and belongs to it: a client that has
  // the token has the text too, and does not get it again by a Fetch.
  const bool ended = choice.result.finish != Finish::none;
  if (ended && entry.has_token) choice.text_ends.back() = choice.result.text.size();
}

void Stream::add_text(Choice& choice, const TokenEntry& entry) {
  const std::string text = choice.detokenizer.push(entry.id);
  const bool may_stop = next(choice) > options_.min_tokens;
  choice.result.text += may_stop ? choice.stops.push(text) : text;
  choice.text_ends.push_back(choice.result.text.size());
}

void Stream::end(Choice& choice, Finish finish) {
  if (!choice.stops.matched()) {
    choice.result.text += choice.stops.push(choice.detokenizer.finish());
    if (choice.stops.matched()) finish = Finish::stop;
  }
  choice.result.text += choice.stops.finish();
  choice.result.finish = finish;
  choice.held.clear();
}

void Stream::drain(Choice& choice) {
  auto at = choice.held.begin();
  while (at != choice.held.end() && choice.result.finish == Finish::none) {
    const auto [epoch, seq] = at->first;
    if (epoch > epoch_ || (epoch == epoch_ && seq > next(choice))) return;
    const Held held = std::move(at->second);
    at = choice.held.erase(at);
    if (epoch == epoch_ && seq == next(choice)) commit(choice, held.entry, held.sender);
    if (choice.held.empty()) return;  // the end of a choice clears it
  }
}

bool Stream::advance(Epoch epoch) {
  if (epoch <= epoch_) return false;
  epoch_ = epoch;
  for (Choice& choice : choices_) {
    choice.epoch_first = next(choice);
    choice.holder = {kClientRank, 0, 0};
    if (choice.result.finish != Finish::none) continue;
    choice.held.erase(choice.held.begin(), choice.held.lower_bound({epoch_, 0}));
    for (const auto& [key, held] : choice.held) {
      if (key.first == epoch_) note_holder(choice, held.entry, held.sender);
    }
    drain(choice);
  }
  return true;
}

uint32_t Stream::committed(uint32_t choice) const {
  return next(choices_.at(choice));
}

uint32_t Stream::committed_total() const {
  uint32_t total = 0;
  for (const Choice& choice : choices_) total += next(choice);
  return total;
}

bool Stream::finished(uint32_t choice) const {
  return choices_.at(choice).result.finish != Finish::none;
}

bool Stream::finished() const {
  return std::all_of(choices_.begin(), choices_.end(),
                     [](const Choice& choice) { return choice.result.finish != Finish::none; });
}

Finish Stream::outcome() const {
  Finish outcome = Finish::stop;
  for (const Choice& choice : choices_) outcome = std::max(outcome, choice.result.finish);
  return outcome;
}

std::vector<std::vector<TokenId>> Stream::committed_ids() const {
  std::vector<std::vector<TokenId>> ids;
  for (const Choice& choice : choices_) ids.push_back(choice.result.ids);
  return ids;
}

bool Stream::has_gap(uint32_t index) const {
  const Choice& choice = choices_.at(index);
  if (choice.result.finish != Finish::none) return false;
  return choice.seen.first == epoch_ && choice.seen.second > next(choice);
}

bool Stream::stopped_by_text(uint32_t choice) const {
  return choices_.at(choice).stops.matched();
}

const ActorId& Stream::holder(uint32_t index) const {
  const ActorId& own = choices_.at(index).holder;
  if (own.rank != kClientRank) return own;
  for (const Choice& choice : choices_) {
    if (choice.holder.rank != kClientRank) return choice.holder;
  }
  return own;
}

ClientTokens Stream::stretch(uint32_t index, uint32_t from, uint32_t to) const {
  const Choice& choice = choices_.at(index);
  const ChoiceResult& all = choice.result;
  CHECK(from <= to);
  CHECK(to <= next(choice));
  const bool last = finished(index) && to == next(choice);
  const size_t start = from == 0 ? 0 : choice.text_ends[from - 1];
  const size_t end = last ? all.text.size() : to == 0 ? 0 : choice.text_ends[to - 1];
  ClientTokens part;
  part.choice = index;
  part.seq = from;
  part.ids.assign(all.ids.begin() + from, all.ids.begin() + to);
  if (options_.logprobs) {
    part.logprobs.assign(all.logprobs.begin() + from, all.logprobs.begin() + to);
  }
  if (options_.top) part.top.assign(all.top.begin() + from, all.top.begin() + to);
  part.text = all.text.substr(start, end - start);
  return part;
}

ChoiceResult Stream::result(uint32_t choice) const {
  return choices_.at(choice).result;
}

size_t Stream::bytes() const {
  size_t bytes = sizeof(Stream);
  for (const Choice& choice : choices_) {
    bytes += sizeof(Choice) + choice.result.text.size() + choice.held.size() * sizeof(Held);
    bytes += choice.result.ids.size() * (sizeof(TokenId) + sizeof(float) + sizeof(size_t));
    for (const auto& top : choice.result.top) {
      bytes += sizeof(top) + top.size() * sizeof(TokenLogprob);
    }
  }
  return bytes;
}

}  // namespace baton
