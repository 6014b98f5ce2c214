#include "actors/decode/retained.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace baton {

void Retained::open(RequestId request, uint32_t choice, Epoch epoch, ActorId gateway,
                    uint32_t acked) {
  RetainedStream& stream = streams_[{request, choice}];
  stream = {};
  stream.epoch = epoch;
  stream.gateway = gateway;
  stream.next = acked;
  stream.acked = acked;
}

void Retained::add(const TokenEntry& entry) {
  RetainedStream* stream = find_live(entry.request, entry.choice, entry.epoch);
  if (!stream) return;  // cancelled: nobody will ask again
  CHECK(entry.seq == stream->next);
  stream->entries.push_back(entry);
  if (entry.has_token) ++stream->next;
}

void Retained::end(RequestId request, uint32_t choice, Epoch epoch, Micros now) {
  RetainedStream* stream = find_live(request, choice, epoch);
  if (!stream) return;
  stream->ended = true;
  stream->ended_us = now;
  if (stream->entries.empty()) streams_.erase({request, choice});
  trim_ended();
}

// More streams than can be kept have ended without a word of their gateway: the oldest goes.
void Retained::trim_ended() {
  const auto ended = std::count_if(streams_.begin(), streams_.end(),
                                   [](const auto& stream) { return stream.second.ended; });
  if (static_cast<size_t>(ended) <= ended_max_) return;
  auto oldest = streams_.end();
  for (auto stream = streams_.begin(); stream != streams_.end(); ++stream) {
    if (!stream->second.ended) continue;
    if (oldest == streams_.end() || stream->second.ended_us < oldest->second.ended_us) {
      oldest = stream;
    }
  }
  streams_.erase(oldest);
}

Retained::Ack Retained::ack(RequestId request, uint32_t choice, Epoch epoch, uint32_t next) {
  RetainedStream* stream = find_live(request, choice, epoch);
  if (!stream) return Ack::unknown;
  const uint32_t reached = std::min(next, stream->next);
  stream->acked = std::max(stream->acked, reached);
  const auto arrived = [&](const TokenEntry& entry) {
    return entry.seq < stream->acked || (!entry.has_token && next > entry.seq);
  };
  while (!stream->entries.empty() && arrived(stream->entries.front())) stream->entries.pop_front();
  // An end mark without a token has no seq of its own: the tokens before it suffice.
  const bool only_mark = stream->entries.size() == 1 && !stream->entries.front().has_token;
  if (stream->ended && (stream->entries.empty() || (only_mark && next >= stream->next))) {
    streams_.erase({request, choice});
  }
  return Ack::taken;
}

std::vector<TokenEntry> Retained::from(RequestId request, uint32_t choice, Epoch epoch,
                                       uint32_t next) const {
  std::vector<TokenEntry> entries;
  const RetainedStream* stream = find(request, choice, epoch);
  if (!stream) return entries;
  for (const TokenEntry& entry : stream->entries) {
    if (entry.seq >= next) entries.push_back(entry);
  }
  return entries;
}

const RetainedStream* Retained::find(RequestId request, uint32_t choice, Epoch epoch) const {
  const auto found = streams_.find({request, choice});
  return found != streams_.end() && found->second.epoch == epoch ? &found->second : nullptr;
}

RetainedStream* Retained::find_live(RequestId request, uint32_t choice, Epoch epoch) {
  const auto found = streams_.find({request, choice});
  return found != streams_.end() && found->second.epoch == epoch ? &found->second : nullptr;
}

void Retained::drop(RequestId request, Epoch epoch) {
  for (auto stream = streams_.lower_bound({request, 0});
       stream != streams_.end() && stream->first.first == request;) {
    stream = stream->second.epoch <= epoch ? streams_.erase(stream) : std::next(stream);
  }
}

void Retained::drop(RequestId request, uint32_t choice, Epoch epoch) {
  if (find_live(request, choice, epoch)) streams_.erase({request, choice});
}

void Retained::drop_ended(Micros before) {
  std::erase_if(streams_, [&](const auto& stream) {
    return stream.second.ended && stream.second.ended_us < before;
  });
}

}  // namespace baton
