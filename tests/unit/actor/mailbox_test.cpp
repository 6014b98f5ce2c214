#include "runtime/actor/mailbox.h"

#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "runtime/actor/delivery.h"

namespace baton {
namespace {

Mail mail_of(MsgKind kind, uint64_t correlation = 0) {
  Mail mail;
  mail.envelope.kind = kind;
  mail.envelope.correlation = correlation;
  return mail;
}

TEST_CASE("control mail goes first, and each lane keeps its order") {
  Mailbox mailbox{Limits{}};
  mailbox.push(mail_of(MsgKind::tokens, 1));
  mailbox.push(mail_of(MsgKind::cancel, 2));
  mailbox.push(mail_of(MsgKind::tokens, 3));
  mailbox.push(mail_of(MsgKind::beat, 4));
  std::vector<Mail> out;
  mailbox.take(out, 3);
  REQUIRE(out.size() == 3);
  CHECK(out[0].envelope.correlation == 2);
  CHECK(out[1].envelope.correlation == 4);
  CHECK(out[2].envelope.correlation == 1);
  mailbox.take(out, 3);
  REQUIRE(out.size() == 1);
  CHECK(out[0].envelope.correlation == 3);
}

TEST_CASE("a full work lane refuses new work, but neither control nor consequences") {
  Limits limits;
  limits.mailbox_work_max = 2;
  Mailbox mailbox{limits};
  CHECK(mailbox.push(mail_of(MsgKind::submit)).pushed == Pushed::accepted);
  CHECK(mailbox.push(mail_of(MsgKind::submit)).pushed == Pushed::accepted);
  CHECK(mailbox.push(mail_of(MsgKind::submit)).pushed == Pushed::full);
  CHECK(mailbox.push(mail_of(MsgKind::admit)).pushed == Pushed::full);
  CHECK(mailbox.push(mail_of(MsgKind::slot_freed)).pushed == Pushed::accepted);
  CHECK(mailbox.push(mail_of(MsgKind::cancel)).pushed == Pushed::accepted);
  CHECK(mailbox.size() == 4);
}

TEST_CASE("a closed mailbox drops what waits and takes nothing more") {
  Mailbox mailbox{Limits{}};
  mailbox.push(mail_of(MsgKind::beat));
  mailbox.close();
  CHECK(mailbox.size() == 0);
  CHECK(mailbox.push(mail_of(MsgKind::cancel)).pushed == Pushed::closed);
}

TEST_CASE("a burst asks for one wake-up, and the next burst for another") {
  Mailbox mailbox{Limits{}};
  CHECK(mailbox.push(mail_of(MsgKind::tokens)).wake);
  CHECK_FALSE(mailbox.push(mail_of(MsgKind::tokens)).wake);
  std::vector<Mail> out;
  mailbox.take(out, 32);
  CHECK(out.size() == 2);
  CHECK_FALSE(mailbox.push(mail_of(MsgKind::tokens)).wake);  // the drain still goes on
  mailbox.take(out, 32);
  mailbox.take(out, 32);
  CHECK(out.empty());
  CHECK(mailbox.push(mail_of(MsgKind::tokens)).wake);
}

TEST_CASE("mail from several threads arrives whole and in each sender's order") {
  Mailbox mailbox{Limits{}};
  constexpr uint64_t kEach = 2000;
  std::atomic<int> wakes{0};
  auto send = [&](uint64_t base) {
    for (uint64_t i = 0; i < kEach; ++i) {
      if (mailbox.push(mail_of(MsgKind::tokens, base + i)).wake) ++wakes;
    }
  };
  std::thread first(send, 0);
  std::thread second(send, 1'000'000);
  uint64_t next_first = 0, next_second = 1'000'000, seen = 0;
  std::vector<Mail> out;
  while (seen < 2 * kEach) {
    mailbox.take(out, 32);
    for (const Mail& mail : out) {
      uint64_t& next = mail.envelope.correlation < 1'000'000 ? next_first : next_second;
      REQUIRE(mail.envelope.correlation == next++);
    }
    seen += out.size();
  }
  first.join();
  second.join();
  CHECK(wakes > 0);
}

TEST_CASE("what begins new work may be refused, what answers it may not") {
  CHECK(delivery_of(MsgKind::run).refusable);
  CHECK(delivery_of(MsgKind::submit).refusable);
  for (MsgKind kind : {MsgKind::slot_freed, MsgKind::tokens, MsgKind::done, MsgKind::client_gone,
                       MsgKind::release, MsgKind::kv_received, MsgKind::cancel}) {
    CHECK_FALSE(delivery_of(kind).refusable);
  }
}

}  // namespace
}  // namespace baton
