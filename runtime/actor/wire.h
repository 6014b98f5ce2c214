#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/actor/message.h"
#include "runtime/base/limits.h"
#include "runtime/base/result.h"

// msgpack encoding of messages. A struct is an array of its fields in order; a decoder ignores
// fields that it does not know (appended later) and refuses a body that lacks one it needs. It
// needs all, unless the struct says in kFieldsNeeded how many its first version had: what foreign
// programs send may lack those appended since, which then keep their initial values. msgpack-c
// itself is included by wire.cpp alone.

namespace baton {

// Appends msgpack values to a string. Owner thread only.
class WireWriter {
 public:
  explicit WireWriter(std::string& out) : out_(out) {}
  void array(size_t size);
  void boolean(bool value);
  void unsigned_integer(uint64_t value);
  void signed_integer(int64_t value);
  void real32(float value);
  void real64(double value);
  void text(std::string_view value);
  void bytes(std::string_view value);
  void nil();

 private:
  std::string& out_;
};

// A cursor over one unpacked msgpack value. Each read checks the type; the first mismatch sets an
// error that names what was expected and makes every later read fail. Owner thread only.
class WireReader {
 public:
  // Parses with the limits' bounds on size, depth and array length; ext and map are refused.
  WireReader(std::string_view bytes, const Limits& limits);
  ~WireReader();
  WireReader(const WireReader&) = delete;
  WireReader& operator=(const WireReader&) = delete;

  bool ok() const { return error_.empty(); }
  const std::string& error() const { return error_; }
  void fail(std::string text);

  // Enters an array and returns its size; leave() moves on behind it, whatever was read of it.
  size_t enter_array();
  void leave();
  bool next_is_nil() const;
  bool boolean();
  uint64_t unsigned_integer(uint64_t max);
  int64_t signed_integer(int64_t min, int64_t max);
  double real();
  std::string text();  // UTF-8 is not checked here
  std::string bytes();
  void skip();

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::string error_;
};

namespace wire {

template <class T>
concept HasFields = requires(T t) {
  t.fields();
};
// How many of them a body must have.
template <HasFields T>
constexpr size_t fields_needed() {
  if constexpr (requires { T::kFieldsNeeded; }) {
    return T::kFieldsNeeded;
  } else {
    return std::tuple_size_v<decltype(std::declval<T&>().fields())>;
  }
}

// An enum of a message says which of its values exist:
//   constexpr bool enum_valid(Finish value);      (found by argument-dependent lookup)
template <class T>
concept CheckedEnum = std::is_enum_v<T> && requires(T t) {
  { enum_valid(t) } -> std::convertible_to<bool>;
};

// Declared ahead, so that containers of containers find them.
template <class T>
void put(WireWriter& w, const T& value);
template <class T>
void put(WireWriter& w, const std::vector<T>& value);
template <class A, class B>
void put(WireWriter& w, const std::pair<A, B>& value);
template <class T>
void put(WireWriter& w, const std::optional<T>& value);
template <class T>
void get(WireReader& r, T& value);
template <class T>
void get(WireReader& r, std::vector<T>& value);
template <class A, class B>
void get(WireReader& r, std::pair<A, B>& value);
template <class T>
void get(WireReader& r, std::optional<T>& value);

template <class T>
void put(WireWriter& w, const std::vector<T>& value) {
  w.array(value.size());
  for (const T& item : value) put(w, item);
}
template <class A, class B>
void put(WireWriter& w, const std::pair<A, B>& value) {
  w.array(2);
  put(w, value.first);
  put(w, value.second);
}
template <class T>
void put(WireWriter& w, const std::optional<T>& value) {
  if (value) {
    put(w, *value);
  } else {
    w.nil();
  }
}
template <class T>
void get(WireReader& r, std::vector<T>& value) {
  const size_t size = r.enter_array();
  value.clear();
  for (size_t i = 0; i < size && r.ok(); ++i) get(r, value.emplace_back());
  r.leave();
}
template <class A, class B>
void get(WireReader& r, std::pair<A, B>& value) {
  if (r.enter_array() != 2) r.fail("a pair needs two items");
  get(r, value.first);
  get(r, value.second);
  r.leave();
}
template <class T>
void get(WireReader& r, std::optional<T>& value) {
  if (r.next_is_nil()) {
    r.skip();
    value.reset();
  } else {
    get(r, value.emplace());
  }
}

template <class T>
void put(WireWriter& w, const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    w.boolean(value);
  } else if constexpr (std::is_same_v<T, float>) {
    w.real32(value);
  } else if constexpr (std::is_same_v<T, double>) {
    w.real64(value);
  } else if constexpr (std::is_enum_v<T>) {
    w.unsigned_integer(static_cast<uint64_t>(value));
  } else if constexpr (std::is_unsigned_v<T>) {
    w.unsigned_integer(value);
  } else if constexpr (std::is_integral_v<T>) {
    w.signed_integer(value);
  } else if constexpr (std::is_same_v<T, std::string>) {
    w.text(value);
  } else if constexpr (std::is_same_v<T, ActorId>) {
    w.array(3);
    w.unsigned_integer(value.rank);
    w.unsigned_integer(value.slot);
    w.unsigned_integer(value.incarnation);
  } else if constexpr (std::is_same_v<T, SlotLease>) {
    w.array(2);
    w.unsigned_integer(value.slot.value);
    w.unsigned_integer(value.generation.value);
  } else if constexpr (HasFields<T>) {
    const auto fields = value.fields();
    w.array(std::tuple_size_v<std::remove_cv_t<decltype(fields)>>);
    std::apply([&](const auto&... field) { (put(w, field), ...); }, fields);
  } else {
    w.unsigned_integer(value.value);  // StrongId
  }
}

template <class T>
void get(WireReader& r, T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    value = r.boolean();
  } else if constexpr (std::is_floating_point_v<T>) {
    value = static_cast<T>(r.real());
  } else if constexpr (CheckedEnum<T>) {
    const auto raw = static_cast<T>(r.unsigned_integer(UINT16_MAX));
    if (enum_valid(raw)) {
      value = raw;
    } else {
      r.fail("an enumerator that does not exist");
    }
  } else if constexpr (std::is_unsigned_v<T>) {
    value = static_cast<T>(r.unsigned_integer(static_cast<T>(~T{0})));
  } else if constexpr (std::is_integral_v<T>) {
    using Limit = std::numeric_limits<T>;
    value = static_cast<T>(r.signed_integer(Limit::min(), Limit::max()));
  } else if constexpr (std::is_same_v<T, std::string>) {
    value = r.text();
  } else if constexpr (std::is_same_v<T, ActorId>) {
    if (r.enter_array() != 3) r.fail("an actor address needs rank, slot, incarnation");
    get(r, value.rank);
    get(r, value.slot);
    get(r, value.incarnation);
    r.leave();
  } else if constexpr (std::is_same_v<T, SlotLease>) {
    if (r.enter_array() != 2) r.fail("a slot lease needs slot and generation");
    get(r, value.slot);
    get(r, value.generation);
    r.leave();
  } else if constexpr (HasFields<T>) {
    auto fields = value.fields();
    const size_t sent = r.enter_array();
    if (sent < fields_needed<T>()) r.fail("a structure lacks fields");
    size_t at = 0;
    std::apply([&](auto&... field) { ((at++ < sent ? get(r, field) : void()), ...); }, fields);
    r.leave();
  } else {
    static_assert(!std::is_enum_v<T>, "declare enum_valid() for an enum that travels");
    get(r, value.value);  // StrongId
  }
}

}  // namespace wire

template <Message M>
std::string encode_body(const M& message) {
  std::string out;
  WireWriter writer(out);
  wire::put(writer, message);
  return out;
}

// Fails with bad_frame, naming the kind and what was wrong; never throws.
template <Message M>
Result<M> decode_body(std::string_view body, const Limits& limits) {
  WireReader reader(body, limits);
  M message;
  wire::get(reader, message);
  if (!reader.ok()) {
    return Error{ErrorCode::bad_frame, std::string(msg_kind_name(M::kind)) + ": " + reader.error()};
  }
  return message;
}

// The envelope as the first frame of a message on a socket: a msgpack array.
std::string encode_envelope(const Envelope& envelope);
// Fails with bad_frame: not msgpack, wrong types, unknown version or kind.
Result<Envelope> decode_envelope(std::string_view bytes, const Limits& limits);

}  // namespace baton
