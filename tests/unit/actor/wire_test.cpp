#include "runtime/actor/wire.h"

#include <doctest/doctest.h>

#include <string>

#include "runtime/actor/engine.h"

using namespace baton;

namespace {

struct Inner {
  int32_t a = 0;
  std::string b;
  BATON_FIELDS(a, b)
};

struct Sample {
  static constexpr MsgKind kind = MsgKind::drain;
  RequestId id;
  Finish finish = Finish::none;
  std::vector<Inner> items;
  std::optional<float> maybe;
  ActorId actor;
  SlotLease slot;
  std::vector<std::pair<TokenId, float>> pairs;
  int64_t negative = 0;
  BATON_FIELDS(id, finish, items, maybe, actor, slot, pairs, negative)
};

struct Longer {
  static constexpr MsgKind kind = MsgKind::drain;
  uint32_t first = 0;
  uint32_t second = 0;
  BATON_FIELDS(first, second)
};

struct Typed {
  static constexpr MsgKind kind = MsgKind::drain;
  uint32_t id = 0;
  Finish finish = Finish::none;
  BATON_FIELDS(id, finish)
};

struct Shorter {
  static constexpr MsgKind kind = MsgKind::drain;
  uint32_t first = 0;
  BATON_FIELDS(first)
};

struct Grown {
  static constexpr MsgKind kind = MsgKind::drain;
  static constexpr size_t kFieldsNeeded = 1;
  uint32_t first = 0;
  std::vector<uint32_t> more{5};
  BATON_FIELDS(first, more)
};

}  // namespace

TEST_CASE("a message comes back as it was sent") {
  Sample s;
  s.id = {UINT64_MAX};
  s.finish = Finish::length;
  s.items = {{-7, "seven"}, {INT32_MIN, std::string("\0x", 2)}};
  s.maybe = 1.5f;
  s.actor = {1, 2, 3};
  s.slot = {{4}, {5}};
  s.pairs = {{1, -2.5f}};
  s.negative = INT64_MIN;
  const Result<Sample> back = decode_body<Sample>(encode_body(s), Limits{});
  REQUIRE(back.ok());
  CHECK(back->id == s.id);
  CHECK(back->finish == Finish::length);
  REQUIRE(back->items.size() == 2);
  CHECK(back->items[1].a == INT32_MIN);
  CHECK(back->items[1].b == s.items[1].b);
  CHECK(back->maybe == 1.5f);
  CHECK(back->actor == s.actor);
  CHECK(back->slot == s.slot);
  CHECK(back->pairs == s.pairs);
  CHECK(back->negative == INT64_MIN);
}

TEST_CASE("fields appended by a newer sender are ignored, missing ones are refused") {
  const std::string longer = encode_body(Longer{1, 2});
  const Result<Shorter> newer = decode_body<Shorter>(longer, Limits{});
  REQUIRE(newer.ok());
  CHECK(newer->first == 1);
  const Result<Longer> older = decode_body<Longer>(encode_body(Shorter{1}), Limits{});
  REQUIRE_FALSE(older.ok());
  CHECK(older.error().code == ErrorCode::bad_frame);
}

TEST_CASE("what was appended to a foreign program's message may be missing") {
  const Result<Grown> old = decode_body<Grown>(encode_body(Shorter{7}), Limits{});
  REQUIRE(old.ok());
  CHECK(old->first == 7);
  CHECK(old->more == std::vector<uint32_t>{5});
  const Result<Grown> present = decode_body<Grown>(encode_body(Grown{7, {1, 2}}), Limits{});
  REQUIRE(present.ok());
  CHECK(present->more == std::vector<uint32_t>{1, 2});
  const std::string empty = "\x90";
  CHECK_FALSE(decode_body<Grown>(empty, Limits{}).ok());
}

TEST_CASE("bytes that are not our message are refused with a sentence and without memory") {
  const struct {
    const char* name;
    std::string bytes;
  } cases[] = {
      {"empty", ""},
      {"array32 of 2^32-1", std::string("\xdd\xff\xff\xff\xff", 5)},
      {"str32 of 2^32-1", std::string("\xdb\xff\xff\xff\xff", 5)},
      {"nested twenty deep", std::string(20, '\x91') + '\x01'},
      {"nested a million deep", std::string(1000000, '\x91')},
      {"a map", std::string("\x81\x01\x02", 3)},
      {"an extension", std::string("\xd4\x01\x02", 3)},
      {"two values", std::string("\x91\x01\x91\x01", 4)},
      {"a string for a number", std::string("\x92\xa1x\x01", 4)},
      {"a negative number for a positive one", std::string("\x92\xff\x01", 3)},
      {"a number above its type", std::string("\x92\xcf\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11)},
  };
  for (const auto& c : cases) {
    INFO(c.name);
    const Result<Longer> result = decode_body<Longer>(c.bytes, Limits{});
    REQUIRE_FALSE(result.ok());
    CHECK(result.error().code == ErrorCode::bad_frame);
    CHECK(result.error().text.size() > 10);
    CHECK(result.error().text.size() < 300);
  }
}

TEST_CASE("an enumerator that does not exist is refused") {
  CHECK(decode_body<Typed>(encode_body(Longer{1, 2}), Limits{}).ok());
  CHECK_FALSE(decode_body<Typed>(encode_body(Longer{1, 9}), Limits{}).ok());
}

TEST_CASE("an envelope comes back, and a foreign one is refused") {
  Envelope e;
  e.kind = MsgKind::run;
  e.from = {1, 2, 3};
  e.to = {4, 5, 6};
  e.link_seq = 7;
  e.request = {8};
  e.epoch = {9};
  e.remaining_us = -1;
  e.trace = "00-abc";
  const Result<Envelope> back = decode_envelope(encode_envelope(e), Limits{});
  REQUIRE(back.ok());
  CHECK(back->kind == MsgKind::run);
  CHECK(back->to == e.to);
  CHECK(back->remaining_us == -1);
  CHECK(back->trace == e.trace);
  e.version = 2;
  CHECK_FALSE(decode_envelope(encode_envelope(e), Limits{}).ok());
  e.version = 1;
  e.kind = static_cast<MsgKind>(9999);
  CHECK_FALSE(decode_envelope(encode_envelope(e), Limits{}).ok());
}
