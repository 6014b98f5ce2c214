#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/actor/collective.h"
#include "runtime/actor/wire.h"

namespace baton {

// What the first rank of an instance tells the others to do. `body` is what the kind needs; whoever
// adds a kind adds its case to CpuEngine::obey.
enum class GroupOrder : uint8_t {
  leave = 0,            // the instance ends; no body
  step = 1,             // compute your part of a Batch (msgpack)
  prepare_weights = 2,  // a WeightsOrder: begin, and go on obeying
  commit_weights = 3,   // a version
  drop_weights = 4,     // a version
  report_weights = 5,   // a WeightsOrder: reply how far it is
};
constexpr bool enum_valid(GroupOrder order) {
  return order <= GroupOrder::report_weights;
}

struct GroupCommand {
  GroupOrder order = GroupOrder::leave;
  std::string body;
};

// Hands commands from the first rank of an instance to all others, through the window of their
// group and its meetings, whatever their size. Used on the compute thread of each rank.
class GroupChannel {
 public:
  static constexpr std::size_t kAreaBytes = std::size_t{256} << 10;

  // `area`: the same kAreaBytes of the window for every member.
  GroupChannel(Collective& group, std::byte* area) : group_(group), area_(area) {}

  // First rank. Returns when all have the command; they may still be at work on it.
  Result<void> send(GroupOrder order, std::string_view body);
  // The others. Waits without a deadline. An order that this build does not know is an error.
  Result<GroupCommand> receive();

  // After an order that asks for it: each of the others replies once, in at most kReplyBytes, and
  // the first rank takes the replies of ranks 1, 2 and so on.
  static constexpr std::size_t kReplyBytes = 4096;
  Result<void> reply(std::string_view body);
  Result<std::vector<std::string>> replies();

 private:
  struct Head;
  Head& head() const { return *reinterpret_cast<Head*>(area_); }

  Collective& group_;
  std::byte* const area_;
};

// Bodies of commands: structures with BATON_FIELDS that are no messages of their own.
template <class T>
std::string encode_fields(const T& value) {
  std::string out;
  WireWriter writer(out);
  wire::put(writer, value);
  return out;
}
template <class T>
Result<T> decode_fields(std::string_view bytes) {
  WireReader reader(bytes, Limits{});
  T value;
  wire::get(reader, value);
  if (!reader.ok()) {
    return Error{ErrorCode::bad_frame, "a command within an instance: " + reader.error()};
  }
  return value;
}

}  // namespace baton
