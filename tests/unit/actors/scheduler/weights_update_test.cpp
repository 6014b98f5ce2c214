#include "actors/scheduler/weights_update.h"

#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace baton {
namespace {

const ActorId kA{1, kPrefillSlot, 1};
const ActorId kB{2, kDecodeSlot, 1};
const ActorId kC{3, kDecodeSlot, 1};

Register holding(std::vector<uint64_t> versions) {
  Register info;
  for (const uint64_t version : versions) {
    const WeightsSource source{version == 1 ? "" : "/w" + std::to_string(version), ""};
    info.weights.push_back({version, version * 11, true, source});
  }
  return info;
}

UpdateWeights ask(uint64_t version = 0, const std::string& path = "/w2") {
  UpdateWeights ask;
  ask.token = "token of " + path;
  ask.source.path = path;
  ask.version = version;
  return ask;
}

// The pure rules, and the test in the place of everybody else.
struct Rules {
  Limits limits;
  WeightsUpdate update{limits};
  Micros now = kSecond;
  uint64_t next_ticket = 100;
  std::vector<WeightsUpdate::Command> last;

  Rules() {
    update.join(kA, holding({1}));
    update.join(kB, holding({1}));
    CHECK(actions().empty());
    CHECK(update.take_switch());  // there are weights at all
    update.take_news();
  }
  const std::vector<WeightsUpdate::Command>& actions() { return last = update.actions(now); }
  // What a worker is told, as "commit 2"; empty if nothing.
  std::string told(ActorId worker) const {
    static constexpr const char* kNames[] = {"none", "prepare", "abort", "commit", "drop"};
    std::string text;
    for (const auto& command : last) {
      if (command.worker != worker) continue;
      text += (text.empty() ? "" : ", ") +
              std::string(kNames[static_cast<size_t>(command.action)]) + " " +
              std::to_string(command.order.version);
    }
    return text;
  }
  void begin(const UpdateWeights& what) {
    REQUIRE_FALSE(update.begin(what, ++next_ticket, now));
    actions();
  }
  void ready(ActorId worker, uint64_t version = 2, uint64_t digest = 22) {
    update.ready(worker, {version, next_ticket, digest, 1000, 5, false}, now);
    actions();
  }
  void failed(ActorId worker, const std::string& why, uint64_t version = 2) {
    update.failed(worker, {version, next_ticket, {ErrorCode::bad_model, why, 0}}, now);
    actions();
  }
  void confirm(ActorId worker, uint64_t version = 2) {
    update.confirmed(worker, {version}, now);
    actions();
  }
  void dropped(ActorId worker, uint64_t version = 1) {
    update.dropped(worker, {version});
    actions();
  }
  // An update up to the moment at which the old version may go.
  void commit_two() {
    begin(ask());
    ready(kA);
    ready(kB);
    confirm(kA);
    confirm(kB);
  }
};

TEST_CASE("the table: what a worker is told, by what it has and what it should have") {
  using enum WeightsAction;
  const auto row = [](HoldState hold) {
    std::vector<WeightsAction> cells;
    for (const auto want :
         {WantState::nothing, WantState::prepared, WantState::committed, WantState::kept}) {
      cells.push_back(weights_action(hold, want));
    }
    return cells;
  };
  using Cells = std::vector<WeightsAction>;
  const auto nothing = WeightsAction::none;
  CHECK(row(HoldState::none) == Cells{nothing, prepare, prepare, nothing});
  CHECK(row(HoldState::preparing) == Cells{abort, nothing, nothing, abort});
  CHECK(row(HoldState::ready) == Cells{abort, nothing, commit, abort});
  CHECK(row(HoldState::committed) == Cells{drop, nothing, nothing, nothing});
  CHECK(row(HoldState::dropping) == Cells{nothing, nothing, nothing, nothing});
  CHECK(row(HoldState::failed) == Cells{nothing, nothing, prepare, nothing});
}

TEST_CASE("an update: all prepare, then all commit, then the old set goes") {
  Rules rules;
  rules.begin(ask());
  CHECK(rules.told(kA) == "prepare 2");
  CHECK(rules.told(kB) == "prepare 2");
  CHECK(rules.last[0].order.source.path == "/w2");
  rules.ready(kA);
  CHECK(rules.last.empty());  // nobody commits before everybody is ready
  CHECK(rules.update.current() == 1);
  rules.ready(kB);
  CHECK(rules.told(kA) == "commit 2, drop 1");
  CHECK(rules.told(kB) == "commit 2, drop 1");
  CHECK(rules.update.take_switch());
  CHECK_FALSE(rules.update.take_switch());
  CHECK(rules.update.current() == 2);
  CHECK(rules.update.phase() == UpdatePhase::committing);
  rules.confirm(kA);
  CHECK(rules.update.phase() == UpdatePhase::committing);
  rules.confirm(kB);
  CHECK(rules.update.phase() == UpdatePhase::retiring);
  CHECK(rules.update.report().last);  // unless it is to wait for the end
  rules.dropped(kA);
  CHECK(rules.update.phase() == UpdatePhase::retiring);
  rules.dropped(kB);
  CHECK(rules.update.phase() == UpdatePhase::idle);
  CHECK(rules.update.previous() == 0);
  CHECK(rules.update.counters().committed == 1);
  CHECK(rules.update.counters().dropped == 2);
}

TEST_CASE("the old version stays as long as a request is bound to it") {
  Rules rules;
  uint64_t request = 0;
  rules.update.bind(request, 1);
  UpdateWeights waits = ask();
  waits.wait_retired = true;
  rules.begin(waits);
  rules.ready(kA);
  rules.ready(kB);
  CHECK(rules.told(kA) == "commit 2");
  rules.confirm(kA);
  rules.confirm(kB);
  CHECK(rules.update.keeps(1));
  CHECK(rules.update.report().old_requests == 1);
  CHECK_FALSE(rules.update.report().last);
  CHECK(rules.update.served_by(kA) == std::vector<uint64_t>{1, 2});
  rules.update.bind(request, 0);
  CHECK(rules.update.has_news());
  rules.actions();
  CHECK(rules.told(kA) == "drop 1");
  rules.dropped(kA);
  rules.dropped(kB);
  CHECK(rules.update.report().last);
}

TEST_CASE("T101: a second update is refused with a sentence that names the one that runs") {
  Rules rules;
  uint64_t request = 0;
  rules.update.bind(request, 1);
  rules.begin(ask());
  auto refusal = rules.update.begin(ask(0, "/w3"), 7, rules.now);
  REQUIRE(refusal);
  CHECK(refusal->code == ErrorCode::conflict);
  CHECK(refusal->text.find("version 2") != std::string::npos);
  CHECK(refusal->text.find("preparing") != std::string::npos);
  rules.ready(kA);
  rules.ready(kB);
  rules.confirm(kA);
  rules.confirm(kB);
  refusal = rules.update.begin(ask(0, "/w3"), 8, rules.now);
  REQUIRE(refusal);
  CHECK(refusal->text.find("1 requests still run on version 1") != std::string::npos);
  rules.update.bind(request, 0);
  rules.actions();
  rules.dropped(kA);
  rules.dropped(kB);
  CHECK_FALSE(rules.update.begin(ask(0, "/w3"), 9, rules.now));
  CHECK(rules.update.counters().refused == 2);
}

TEST_CASE("T99: one worker that cannot read the file ends the update, and nothing has changed") {
  Rules rules;
  rules.begin(ask());
  rules.ready(kA);
  rules.failed(kB, "/w2: tensor 'x' ends too early");
  CHECK(rules.told(kA) == "abort 2");
  CHECK(rules.told(kB).empty());
  CHECK(rules.update.current() == 1);
  CHECK_FALSE(rules.update.take_switch());
  const UpdateReport report = rules.update.report();
  CHECK(report.last);
  CHECK(report.phase == UpdatePhase::failed);
  CHECK(report.refusal.text == "rank 2: /w2: tensor 'x' ends too early");
  CHECK(rules.update.trouble(kB).empty());
  // The same version may be tried again; answers of the first attempt mean nothing then.
  const uint64_t first = rules.next_ticket;
  rules.begin(ask(2));
  CHECK(rules.told(kA) == "prepare 2");
  rules.update.ready(kA, {2, first, 22, 0, 0, false}, rules.now);
  CHECK(rules.update.report().workers_done == 0);
}

TEST_CASE("workers that read other bytes under the same path end the update") {
  Rules rules;
  rules.begin(ask());
  rules.ready(kA, 2, 22);
  rules.ready(kB, 2, 23);
  CHECK(rules.update.phase() == UpdatePhase::failed);
  CHECK(rules.update.report().refusal.text.find("rank 2 read other bytes") == 0);
  CHECK(rules.told(kA) == "abort 2");
  CHECK(rules.told(kB) == "abort 2");
}

TEST_CASE("a worker that is not ready in time ends the update, and is named") {
  Rules rules;
  UpdateWeights hurried = ask();
  hurried.timeout_ms = 2000;
  rules.begin(hurried);
  rules.ready(kA);
  rules.update.tick(rules.now + 2 * kSecond - 1);
  CHECK(rules.update.phase() == UpdatePhase::preparing);
  rules.update.tick(rules.now + 2 * kSecond);
  CHECK(rules.update.phase() == UpdatePhase::failed);
  CHECK(rules.update.report().refusal.text ==
        "the weights were not prepared within 2000 ms on rank 2");
}

TEST_CASE("a worker that dies before the commit does not hold it up; the last one ends it") {
  Rules rules;
  rules.begin(ask());
  rules.ready(kA);
  rules.update.leave(kB, rules.now);
  rules.actions();
  CHECK(rules.told(kA) == "commit 2, drop 1");
  Rules other;
  other.begin(ask());
  other.update.leave(kA, other.now);
  other.update.leave(kB, other.now);
  CHECK(other.update.phase() == UpdatePhase::failed);
}

TEST_CASE("a worker that joins in the middle is asked too, and waited for") {
  Rules rules;
  rules.begin(ask());
  rules.ready(kA);
  rules.update.join(kC, holding({1}));
  rules.actions();
  CHECK(rules.told(kC) == "prepare 2");
  rules.ready(kB);
  CHECK(rules.update.current() == 1);
  rules.ready(kC);
  CHECK(rules.told(kC) == "commit 2, drop 1");
}

TEST_CASE("a worker with old weights is brought up to date before it serves requests") {
  Rules rules;
  rules.commit_two();
  rules.dropped(kA);
  rules.dropped(kB);
  rules.update.join(kC, holding({1}));
  rules.actions();
  CHECK(rules.told(kC) == "prepare 2");
  CHECK(rules.last[0].order.source.path == "/w2");
  CHECK(rules.update.served_by(kC) == std::vector<uint64_t>{1});
  CHECK_FALSE(rules.update.trouble(kC).empty());
  rules.ready(kC);
  CHECK(rules.told(kC) == "commit 2, drop 1");
  CHECK(rules.update.trouble(kC).empty());
  rules.dropped(kC);
  CHECK(rules.update.served_by(kC) == std::vector<uint64_t>{2});
  CHECK(rules.update.counters().brought_up == 1);
  CHECK(rules.update.current() == 2);
}

TEST_CASE("a worker that cannot catch up says why, is asked again, and holds no update up") {
  Rules rules;
  rules.commit_two();
  rules.dropped(kA);
  rules.dropped(kB);
  rules.update.join(kC, holding({1}));
  rules.actions();
  rules.failed(kC, "/w2: cannot be opened");
  CHECK(rules.update.trouble(kC) == "version 2: /w2: cannot be opened");
  CHECK(rules.actions().empty());
  rules.now += 5 * kSecond;
  rules.actions();
  CHECK(rules.told(kC) == "prepare 2");
  rules.failed(kC, "/w2: cannot be opened");
  CHECK(rules.update.phase() == UpdatePhase::idle);
  rules.begin(ask(0, "/w3"));
  CHECK(rules.told(kC) == "prepare 3");
  for (const ActorId worker : {kA, kB, kC}) rules.ready(worker, 3, 33);
  for (const ActorId worker : {kA, kB, kC}) rules.confirm(worker, 3);
  rules.dropped(kA, 2);
  rules.dropped(kB, 2);
  CHECK(rules.update.phase() == UpdatePhase::idle);  // what it never had is not waited for
}

TEST_CASE("a worker that has other bytes under a served number is refused") {
  Rules rules;
  Register wrong = holding({1});
  wrong.weights[0].digest = 5;
  const auto fault = rules.update.fault(wrong);
  REQUIRE(fault);
  CHECK(fault->code == ErrorCode::conflict);
  CHECK(fault->text.find("version 1") == 0);
  CHECK_FALSE(rules.update.fault(holding({1})));
}

TEST_CASE("a scheduler that starts over takes the latest version that anybody has committed") {
  const Limits limits;
  WeightsUpdate update(limits);
  update.join(kA, holding({4}));
  CHECK(update.take_switch());
  CHECK(update.current() == 4);
  update.join(kB, holding({4, 5}));
  CHECK(update.take_switch());
  CHECK(update.current() == 5);
  const auto actions = update.actions(0);
  REQUIRE(actions.size() == 2);
  CHECK(actions[0].worker == kA);
  CHECK(actions[0].action == WeightsAction::prepare);
  CHECK(actions[0].order.source.path == "/w5");
  CHECK(actions[1].worker == kB);
  CHECK(actions[1].action == WeightsAction::drop);
  CHECK(actions[1].order.version == 4);
}

TEST_CASE("a dry run prepares everywhere and lets go of it") {
  Rules rules;
  UpdateWeights dry = ask();
  dry.dry_run = true;
  rules.begin(dry);
  rules.ready(kA);
  rules.ready(kB);
  CHECK(rules.told(kA) == "abort 2");
  CHECK(rules.told(kB) == "abort 2");
  CHECK(rules.update.current() == 1);
  CHECK(rules.update.report().last);
  CHECK(rules.update.report().phase == UpdatePhase::idle);
  CHECK(rules.update.report().digest == 22);
}

TEST_CASE("an ask that cannot work is refused before anybody hears of it") {
  Rules rules;
  const auto code_of = [&](const UpdateWeights& what) {
    const auto refusal = rules.update.begin(what, 1, rules.now);
    REQUIRE(refusal);
    CHECK_FALSE(refusal->text.empty());
    return refusal->code;
  };
  CHECK(code_of(ask(0, "relative.gguf")) == ErrorCode::invalid_argument);
  CHECK(code_of(ask(0, "")) == ErrorCode::invalid_argument);
  CHECK(code_of(ask(1)) == ErrorCode::invalid_argument);  // not newer
  UpdateWeights digits = ask();
  digits.source.sha256 = "abc";
  CHECK(code_of(digits) == ErrorCode::invalid_argument);
  WeightsUpdate empty{rules.limits};
  CHECK(empty.begin(ask(), 1, 0)->code == ErrorCode::unavailable);
  CHECK(rules.actions().empty());
}

TEST_CASE("at most two sets are in memory: a third waits until one is gone") {
  Rules rules;
  rules.update.join(kC, holding({1}));
  rules.commit_two();
  CHECK(rules.update.phase() == UpdatePhase::preparing);
  rules.ready(kC);
  CHECK(rules.told(kC) == "commit 2, drop 1");
  // A life that came back with two sets, neither of which is the current one.
  Rules other;
  other.commit_two();
  other.dropped(kA);
  other.dropped(kB);
  other.update.join(kC, holding({1}));
  other.update.leave(kC, other.now);
  Register two = holding({1});
  two.weights.push_back({0, 0, true, {}});
  other.update.join(kC, two);
  other.actions();
  CHECK(other.told(kC) == "drop 1");
  other.dropped(kC, 1);
  CHECK(other.told(kC) == "prepare 2");
}

}  // namespace
}  // namespace baton
