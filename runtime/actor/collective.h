#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "runtime/base/result.h"

namespace baton {

// Who meets: the whole group, or the caller's part of it. A group is divided into parts of equal
// size when it is made: neighbouring members, the stages of a pipeline.
enum class Circle : uint8_t { all, part };

// A fixed group of members, each a rank of one instance, that share a window of bytes and meet in
// barriers. To gather is to write one's own range into the window and then meet: nothing is copied,
// and nothing is ever summed across members. A member that dies, stays away past the deadline or
// breaks the group turns every meeting, from then on, into an error for all of them: never a hang.
//
// One thread of each member meets at a time, and all members of a circle meet equally often.
class Collective {
 public:
  virtual ~Collective() = default;

  virtual uint32_t size() const = 0;
  virtual uint32_t index() const = 0;
  // The same bytes for every member; zero at first. Good as long as the group.
  virtual std::span<std::byte> window() = 0;

  // Returns when all of the circle have come. What they wrote before it is seen after it. Members
  // that wait for others which work are patient as long as those meet among themselves.
  virtual Result<void> meet(Circle circle) = 0;
  // As meet(all), for a member that has nothing to do until the others come: without a deadline.
  virtual Result<void> wait() = 0;

  // Breaks the group for everybody, with a sentence that says why. thread-safe
  virtual void abort(const std::string& reason) = 0;
  // From now on members may leave: their end is no failure. Called by member 0, once. thread-safe
  virtual void close() = 0;
  // `call` runs once, on a thread of the group's own, when the group is broken, also when nobody
  // meets. Set before anything can break it; an empty one takes it away, and waits for one that
  // runs.
  virtual void on_broken(std::function<void(const Error&)> call) = 0;
};

}  // namespace baton
