#include "runtime/engine/group_channel.h"

#include <thread>
#include <vector>

#include "runtime/base/hash.h"
#include "transport/shm/shm_group.h"

#include <doctest/doctest.h>

namespace baton {
namespace {

std::string made_up_body(std::size_t size) {
  std::string body(size, '\0');
  for (std::size_t i = 0; i < size; ++i) body[i] = static_cast<char>(mix64(size * 31 + i));
  return body;
}

}  // namespace

TEST_CASE("commands of any size reach every rank of an instance whole and in order") {
  const std::size_t sizes[] = {0,       1, GroupChannel::kAreaBytes - 64, GroupChannel::kAreaBytes,
                               1000000, 3, GroupChannel::kAreaBytes * 2};
  ShmGroupOptions options;
  options.size = 3;
  options.window_bytes = GroupChannel::kAreaBytes;
  auto first = ShmGroup::create(options).value();
  std::vector<std::thread> others;
  std::atomic<int> good{0};
  for (options.index = 1; options.index < 3; ++options.index) {
    others.emplace_back([&, options] {
      auto group = ShmGroup::join(first->name(), options).value();
      bool same = group->gather(10 * kSecond).ok();
      GroupChannel channel(*group, group->window().data());
      for (const std::size_t size : sizes) {
        const Result<GroupCommand> command = channel.receive();
        same = same && command.ok() && command->order == GroupOrder::step &&
               command->body == made_up_body(size);
      }
      const Result<GroupCommand> last = channel.receive();
      if (same && last.ok() && last->order == GroupOrder::leave) ++good;
    });
  }
  REQUIRE(first->gather(10 * kSecond).ok());
  GroupChannel channel(*first, first->window().data());
  for (const std::size_t size : sizes) {
    CHECK(channel.send(GroupOrder::step, made_up_body(size)).ok());
  }
  CHECK(channel.send(GroupOrder::leave, {}).ok());
  for (std::thread& other : others) other.join();
  CHECK(good == 2);
}

TEST_CASE("an order of another build is an error that says so") {
  ShmGroupOptions options;
  options.size = 2;
  options.window_bytes = GroupChannel::kAreaBytes;
  auto first = ShmGroup::create(options).value();
  options.index = 1;
  auto second = ShmGroup::join(first->name(), options).value();
  std::thread other([&] {
    CHECK(second->gather(10 * kSecond).ok());
    const auto command = GroupChannel(*second, second->window().data()).receive();
    CHECK(!command.ok());
    if (!command.ok()) CHECK(command.error().code == ErrorCode::unsupported);
    second->abort("cannot obey");
  });
  REQUIRE(first->gather(10 * kSecond).ok());
  GroupChannel channel(*first, first->window().data());
  const auto sent = channel.send(static_cast<GroupOrder>(200), "x");
  other.join();
  REQUIRE(!sent.ok());
  CHECK(sent.error().text.find("cannot obey") != std::string::npos);
}

}  // namespace baton
