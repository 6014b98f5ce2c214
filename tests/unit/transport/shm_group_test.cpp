#include "transport/shm/shm_group.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

namespace baton {
namespace {

constexpr Micros kWithin = 20 * kSecond;

ShmGroupOptions shape(uint32_t size, uint32_t parts = 1) {
  ShmGroupOptions options;
  options.size = size;
  options.parts = parts;
  options.window_bytes = 4096 * size;
  options.meet_within_us = kWithin;
  return options;
}

ShmGroupOptions member(ShmGroupOptions options, uint32_t index) {
  options.index = index;
  return options;
}

// Runs `work` as member 1, 2, ... on threads of this process and as member 0 here.
template <class Work>
void together(const ShmGroupOptions& options, const Work& work) {
  auto first = ShmGroup::create(options).value();
  std::vector<std::thread> threads;
  for (uint32_t i = 1; i < options.size; ++i) {
    threads.emplace_back([&, i] {
      auto group = ShmGroup::join(first->name(), member(options, i)).value();
      if (group->gather(kWithin).ok()) work(*group);
    });
  }
  REQUIRE(first->gather(kWithin).ok());
  work(*first);
  for (std::thread& thread : threads) thread.join();
}

// A process of its own that is member `index`; it ends when `work` returns.
template <class Work>
pid_t fork_member(const std::string& name, const ShmGroupOptions& options, uint32_t index,
                  const Work& work) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  auto group = ShmGroup::join(name, member(options, index));
  if (!group.ok() || !(*group)->gather(kWithin).ok()) _exit(3);
  _exit(work(**group));
}

int status_of(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

uint64_t& word(ShmGroup& group, uint32_t at) {
  return reinterpret_cast<uint64_t*>(group.window().data())[at * 8];
}

// Rounds of: everyone writes, all meet, everyone reads all.
bool gather_rounds(ShmGroup& group, uint64_t rounds) {
  bool good = true;
  for (uint64_t round = 1; round <= rounds; ++round) {
    word(group, group.index()) = round * 100 + group.index();
    good = good && group.meet(Circle::all).ok();
    for (uint32_t i = 0; i < group.size(); ++i) {
      good = good && word(group, i) == round * 100 + i;
    }
    good = good && group.meet(Circle::all).ok();
  }
  return good;
}

}  // namespace

TEST_CASE("members gather by writing and meeting, for thousands of rounds") {
  for (const uint32_t size : {1u, 2u, 3u, 5u}) {
    for (const int spins : {0, 200}) {
      ShmGroupOptions options = shape(size);
      options.spins = spins;
      std::atomic<uint32_t> good{0};
      together(options, [&](ShmGroup& group) { good += gather_rounds(group, 2000) ? 1 : 0; });
      CHECK(good == size);
    }
  }
}

TEST_CASE("members of several processes gather likewise") {
  const ShmGroupOptions options = shape(3);
  auto first = ShmGroup::create(options).value();
  std::vector<pid_t> others;
  for (const uint32_t i : {1u, 2u}) {
    others.push_back(fork_member(first->name(), options, i,
                                 [](ShmGroup& g) { return gather_rounds(g, 1000) ? 0 : 1; }));
  }
  REQUIRE(first->gather(kWithin).ok());
  CHECK(gather_rounds(*first, 1000));
  first->close();
  for (const pid_t pid : others) CHECK(status_of(pid) == 0);
}

TEST_CASE("parts of a group meet without the other parts") {
  std::atomic<int> good{0};
  together(shape(4, 2), [&](ShmGroup& group) {
    bool met = true;
    const int rounds = group.index() < 2 ? 500 : 20;  // each part at its own pace
    for (int i = 0; i < rounds; ++i) met = met && group.meet(Circle::part).ok();
    met = met && group.meet(Circle::all).ok();
    good += met ? 1 : 0;
  });
  CHECK(good == 4);
}

TEST_CASE("the death of a member is an error for all, and names it") {
  ShmGroupOptions options = shape(3);
  options.names = {"rank 4", "rank 5", "rank 6"};
  auto first = ShmGroup::create(options).value();
  const pid_t survivor = fork_member(first->name(), options, 1, [](ShmGroup& g) {
    const Result<void> met = g.meet(Circle::all);
    return !met.ok() && met.error().text.find("rank 6") != std::string::npos ? 0 : 1;
  });
  const pid_t victim = fork_member(first->name(), options, 2, [](ShmGroup&) {
    pause();
    return 0;
  });
  REQUIRE(first->gather(kWithin).ok());
  std::atomic<int> told{0};
  first->on_broken([&](const Error&) { ++told; });
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    kill(victim, SIGKILL);
  });
  const auto start = std::chrono::steady_clock::now();
  const Result<void> met = first->wait();
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
  killer.join();
  REQUIRE(!met.ok());
  CHECK(met.error().code == ErrorCode::worker_lost);
  CHECK(met.error().text.find("rank 6 (pid " + std::to_string(victim) + ")") != std::string::npos);
  CHECK(!first->meet(Circle::all).ok());  // for ever
  CHECK(status_of(survivor) == 0);
  CHECK(status_of(victim) == 128 + SIGKILL);
  for (int i = 0; i < 300 && told == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  CHECK(told == 1);
}

TEST_CASE("a death is told while nobody meets") {
  const ShmGroupOptions options = shape(2);
  auto first = ShmGroup::create(options).value();
  const pid_t victim = fork_member(first->name(), options, 1, [](ShmGroup&) {
    pause();
    return 0;
  });
  REQUIRE(first->gather(kWithin).ok());
  std::atomic<bool> told{false};
  first->on_broken([&](const Error&) { told = true; });
  kill(victim, SIGKILL);
  for (int i = 0; i < 1000 && !told; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  CHECK(told);
  status_of(victim);
}

TEST_CASE("after close the end of a member is no failure") {
  const ShmGroupOptions options = shape(2);
  auto first = ShmGroup::create(options).value();
  const pid_t other =
      fork_member(first->name(), options, 1, [](ShmGroup& g) { return g.wait().ok() ? 0 : 1; });
  REQUIRE(first->gather(kWithin).ok());
  std::atomic<bool> told{false};
  first->on_broken([&](const Error&) { told = true; });
  first->close();
  CHECK(first->meet(Circle::all).ok());
  CHECK(status_of(other) == 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  CHECK(!told);
}

TEST_CASE("who stays away past the deadline is named, and all get the error") {
  ShmGroupOptions options = shape(3);
  options.meet_within_us = 150 * kMillisecond;
  std::atomic<int> good{0};
  together(options, [&](ShmGroup& group) {
    if (group.index() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(600));
    }
    const Result<void> met = group.meet(Circle::all);
    const bool named = !met.ok() && met.error().code == ErrorCode::deadline_exceeded &&
                       met.error().text.find("member 1 ") != std::string::npos;
    good += named ? 1 : 0;
  });
  CHECK(good == 3);
}

TEST_CASE("a stopped member is noticed long before the deadline, and finds itself left out") {
  ShmGroupOptions options = shape(2);
  options.stopped_within_us = 200 * kMillisecond;
  auto first = ShmGroup::create(options).value();
  const pid_t frozen = fork_member(first->name(), options, 1, [](ShmGroup& g) {
    raise(SIGSTOP);
    return g.meet(Circle::all).ok() ? 1 : 0;
  });
  REQUIRE(first->gather(kWithin).ok());
  const auto start = std::chrono::steady_clock::now();
  const Result<void> met = first->meet(Circle::all);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::microseconds(kWithin / 2));
  REQUIRE(!met.ok());
  CHECK(met.error().text.find("member 1 ") != std::string::npos);
  CHECK(met.error().text.find("is stopped") != std::string::npos);
  kill(frozen, SIGCONT);
  CHECK(status_of(frozen) == 0);
}

TEST_CASE("who waits for a part that works is patient, and wait() always is") {
  ShmGroupOptions options = shape(4, 2);
  options.meet_within_us = 200 * kMillisecond;
  std::atomic<int> good{0};
  together(options, [&](ShmGroup& group) {
    bool met = true;
    for (int i = 0; i < 12 && group.index() < 2; ++i) {  // longer than the deadline in all
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      met = met && group.meet(Circle::part).ok();
    }
    met = met && group.meet(Circle::all).ok();
    if (group.index() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    met = met && group.wait().ok();
    good += met ? 1 : 0;
  });
  CHECK(good == 4);
}

TEST_CASE("a group can be broken from outside a meeting; the first reason counts") {
  std::atomic<int> good{0};
  together(shape(3), [&](ShmGroup& group) {
    if (group.index() == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      group.abort("no more");
      group.abort("a second reason");
    }
    const Result<void> met = group.meet(Circle::all);
    good += !met.ok() && met.error().text.find("no more") != std::string::npos ? 1 : 0;
  });
  CHECK(good == 3);
}

TEST_CASE("members with other options, wrong names and wrong shapes are refused") {
  const ShmGroupOptions options = shape(2);
  auto first = ShmGroup::create(options).value();
  ShmGroupOptions other = member(options, 1);
  other.window_bytes += 4096;
  const auto larger = ShmGroup::join(first->name(), other);
  REQUIRE(!larger.ok());
  CHECK(larger.error().code == ErrorCode::conflict);
  CHECK(larger.error().text.find(std::to_string(other.window_bytes)) != std::string::npos);
  const std::string name = first->name();
  const std::string wrong = name.substr(0, name.find(' ')) + " 0000000000000001";
  CHECK(!ShmGroup::join(wrong, member(options, 1)).ok());
  CHECK(!ShmGroup::join("/proc/1/fd/999 1", member(options, 1)).ok());
  CHECK(!ShmGroup::create(shape(3, 2)).ok());
  const auto alone = first->gather(50 * kMillisecond);
  REQUIRE(!alone.ok());
  CHECK(alone.error().text.find("only 1 of the 2") != std::string::npos);
}

}  // namespace baton
