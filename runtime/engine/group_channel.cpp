#include "runtime/engine/group_channel.h"

#include <algorithm>
#include <cstring>

namespace baton {

struct GroupChannel::Head {
  uint64_t bytes;  // of the whole body
  GroupOrder order;
};

namespace {
constexpr std::size_t kHeadBytes = 64;
constexpr std::size_t kChunkBytes = GroupChannel::kAreaBytes - kHeadBytes;
}  // namespace

Result<void> GroupChannel::send(GroupOrder order, std::string_view body) {
  static_assert(sizeof(Head) <= kHeadBytes);
  head() = {body.size(), order};
  std::size_t at = 0;
  do {
    const std::size_t size = std::min(body.size() - at, kChunkBytes);
    if (size > 0) std::memcpy(area_ + kHeadBytes, body.data() + at, size);
    at += size;
    for (int turn = 0; turn < 2; ++turn) {  // it is there; all have it
      if (Result<void> met = group_.meet(Circle::all); !met.ok()) return met;
    }
  } while (at < body.size());
  return {};
}

Result<GroupCommand> GroupChannel::receive() {
  GroupCommand command;
  Result<void> met = group_.wait();
  if (!met.ok()) return met.error();
  const Head first = head();
  if (!enum_valid(first.order)) {
    return Error{ErrorCode::unsupported,
                 "the first rank of the instance gave order " +
                     std::to_string(static_cast<int>(first.order)) +
                     ", which this build does not know: run the same build on all ranks"};
  }
  command.order = first.order;
  command.body.resize(first.bytes);
  for (std::size_t at = 0;;) {
    const std::size_t size = std::min(command.body.size() - at, kChunkBytes);
    std::memcpy(command.body.data() + at, area_ + kHeadBytes, size);
    at += size;
    met = group_.meet(Circle::all);
    if (!met.ok()) return met.error();
    if (at == command.body.size()) return command;
    met = group_.meet(Circle::all);
    if (!met.ok()) return met.error();
  }
}

Result<void> GroupChannel::reply(std::string_view body) {
  const uint64_t size = body.size();
  CHECK(size + sizeof size <= kReplyBytes);
  CHECK(kHeadBytes + group_.size() * kReplyBytes <= kAreaBytes);
  std::byte* const slot = area_ + kHeadBytes + group_.index() * kReplyBytes;
  std::memcpy(slot, &size, sizeof size);
  if (size > 0) std::memcpy(slot + sizeof size, body.data(), size);
  return group_.meet(Circle::all);
}

Result<std::vector<std::string>> GroupChannel::replies() {
  if (Result<void> met = group_.meet(Circle::all); !met.ok()) return met.error();
  std::vector<std::string> all;
  for (uint32_t rank = 1; rank < group_.size(); ++rank) {
    const std::byte* const slot = area_ + kHeadBytes + rank * kReplyBytes;
    uint64_t size = 0;
    std::memcpy(&size, slot, sizeof size);
    CHECK(size + sizeof size <= kReplyBytes);
    std::string& text = all.emplace_back(size, '\0');
    std::memcpy(text.data(), slot + sizeof size, size);
  }
  return all;
}

}  // namespace baton
