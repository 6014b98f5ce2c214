#include "runtime/actor/wire.h"

#include <msgpack.hpp>

namespace baton {
namespace {

// Lets msgpack's packer append to a std::string.
struct StringSink {
  std::string& out;
  void write(const char* data, size_t size) { out.append(data, size); }
};

msgpack::packer<StringSink> packer_of(StringSink& sink) {
  return msgpack::packer<StringSink>(sink);
}

const char* type_name(msgpack::type::object_type type) {
  switch (type) {
    case msgpack::type::NIL: return "nil";
    case msgpack::type::BOOLEAN: return "a boolean";
    case msgpack::type::POSITIVE_INTEGER: return "a positive integer";
    case msgpack::type::NEGATIVE_INTEGER: return "a negative integer";
    case msgpack::type::FLOAT32:
    case msgpack::type::FLOAT64: return "a float";
    case msgpack::type::STR: return "a string";
    case msgpack::type::BIN: return "bytes";
    case msgpack::type::ARRAY: return "an array";
    case msgpack::type::MAP: return "a map";
    case msgpack::type::EXT: return "an extension";
  }
  return "something unknown";
}

}  // namespace

void WireWriter::array(size_t size) {
  StringSink sink{out_};
  packer_of(sink).pack_array(static_cast<uint32_t>(size));
}
void WireWriter::boolean(bool value) {
  StringSink sink{out_};
  packer_of(sink).pack(value);
}
void WireWriter::unsigned_integer(uint64_t value) {
  StringSink sink{out_};
  packer_of(sink).pack_uint64(value);
}
void WireWriter::signed_integer(int64_t value) {
  StringSink sink{out_};
  packer_of(sink).pack_int64(value);
}
void WireWriter::real32(float value) {
  StringSink sink{out_};
  packer_of(sink).pack_float(value);
}
void WireWriter::real64(double value) {
  StringSink sink{out_};
  packer_of(sink).pack_double(value);
}
void WireWriter::text(std::string_view value) {
  StringSink sink{out_};
  auto packer = packer_of(sink);
  packer.pack_str(static_cast<uint32_t>(value.size()));
  packer.pack_str_body(value.data(), static_cast<uint32_t>(value.size()));
}
void WireWriter::bytes(std::string_view value) {
  StringSink sink{out_};
  auto packer = packer_of(sink);
  packer.pack_bin(static_cast<uint32_t>(value.size()));
  packer.pack_bin_body(value.data(), static_cast<uint32_t>(value.size()));
}
void WireWriter::nil() {
  StringSink sink{out_};
  packer_of(sink).pack_nil();
}

// A level of the walk: the values of an array that remain, or the root alone.
struct WireReader::State {
  struct Level {
    const msgpack::object* next;
    const msgpack::object* end;
  };
  msgpack::object_handle handle;
  msgpack::object root;
  std::vector<Level> levels;

  const msgpack::object* peek() const {
    if (levels.empty()) return nullptr;
    const Level& level = levels.back();
    return level.next == level.end ? nullptr : level.next;
  }
  const msgpack::object* take() {
    const msgpack::object* value = peek();
    if (value) ++levels.back().next;
    return value;
  }
};

WireReader::WireReader(std::string_view bytes, const Limits& limits)
    : state_(std::make_unique<State>()) {
  if (bytes.size() > limits.message_bytes_max) {
    fail("larger than a message may be");
    return;
  }
  // No container can hold more items than there are bytes left: a short body cannot ask for memory.
  const size_t items = std::min(limits.array_items_max, bytes.size());
  const msgpack::unpack_limit bounds(items, 0, bytes.size(), bytes.size(), 0,
                                     limits.msgpack_depth_max);
  try {
    size_t used = 0;
    state_->handle = msgpack::unpack(bytes.data(), bytes.size(), used, nullptr, nullptr, bounds);
    if (used != bytes.size()) {
      fail("bytes follow the message");
      return;
    }
  } catch (const msgpack::unpack_error& error) {
    fail(std::string("not acceptable msgpack: ") + error.what());
    return;
  }
  state_->root = state_->handle.get();
  state_->levels.push_back({&state_->root, &state_->root + 1});
}

WireReader::~WireReader() = default;

void WireReader::fail(std::string text) {
  if (error_.empty()) error_ = std::move(text);
}

namespace {

// The next value if it has one of the expected types; otherwise sets the reader's error.
template <class State, class Accept>
const msgpack::object* take_value(WireReader& reader, State& state, const char* expected,
                                  Accept accept) {
  if (!reader.ok()) return nullptr;
  const msgpack::object* value = state.take();
  if (!value) {
    reader.fail(std::string("expected ") + expected + ", got the end of the structure");
    return nullptr;
  }
  if (!accept(value->type)) {
    reader.fail(std::string("expected ") + expected + ", got " + type_name(value->type));
    return nullptr;
  }
  return value;
}

}  // namespace

size_t WireReader::enter_array() {
  const auto* value = take_value(*this, *state_, "an array",
                                 [](auto type) { return type == msgpack::type::ARRAY; });
  if (!value) return 0;
  const auto& array = value->via.array;
  state_->levels.push_back({array.ptr, array.ptr + array.size});
  return array.size;
}

void WireReader::leave() {
  if (ok()) state_->levels.pop_back();
}

bool WireReader::next_is_nil() const {
  const msgpack::object* value = ok() ? state_->peek() : nullptr;
  return value && value->type == msgpack::type::NIL;
}

bool WireReader::boolean() {
  const auto* value = take_value(*this, *state_, "a boolean",
                                 [](auto type) { return type == msgpack::type::BOOLEAN; });
  return value && value->via.boolean;
}

uint64_t WireReader::unsigned_integer(uint64_t max) {
  const auto* value = take_value(*this, *state_, "a positive integer",
                                 [](auto type) { return type == msgpack::type::POSITIVE_INTEGER; });
  if (!value) return 0;
  if (value->via.u64 > max) {
    fail("an integer above " + std::to_string(max));
    return 0;
  }
  return value->via.u64;
}

int64_t WireReader::signed_integer(int64_t min, int64_t max) {
  const auto* value = take_value(*this, *state_, "an integer", [](auto type) {
    return type == msgpack::type::POSITIVE_INTEGER || type == msgpack::type::NEGATIVE_INTEGER;
  });
  if (!value) return 0;
  const bool positive = value->type == msgpack::type::POSITIVE_INTEGER;
  const bool fits = positive ? value->via.u64 <= static_cast<uint64_t>(max) : value->via.i64 >= min;
  if (!fits) {
    fail("an integer outside " + std::to_string(min) + " to " + std::to_string(max));
    return 0;
  }
  return positive ? static_cast<int64_t>(value->via.u64) : value->via.i64;
}

double WireReader::real() {
  const auto* value = take_value(*this, *state_, "a number", [](auto type) {
    return type == msgpack::type::FLOAT32 || type == msgpack::type::FLOAT64 ||
           type == msgpack::type::POSITIVE_INTEGER || type == msgpack::type::NEGATIVE_INTEGER;
  });
  return value ? value->as<double>() : 0;
}

std::string WireReader::text() {
  const auto* value =
      take_value(*this, *state_, "a string", [](auto type) { return type == msgpack::type::STR; });
  return value ? std::string(value->via.str.ptr, value->via.str.size) : std::string();
}

std::string WireReader::bytes() {
  const auto* value =
      take_value(*this, *state_, "bytes", [](auto type) { return type == msgpack::type::BIN; });
  return value ? std::string(value->via.bin.ptr, value->via.bin.size) : std::string();
}

void WireReader::skip() {
  take_value(*this, *state_, "a value", [](auto) { return true; });
}

std::string encode_envelope(const Envelope& e) {
  std::string out;
  WireWriter w(out);
  w.array(11);
  w.unsigned_integer(e.version);
  w.unsigned_integer(static_cast<uint64_t>(e.kind));
  wire::put(w, e.from);
  wire::put(w, e.to);
  w.unsigned_integer(e.link_seq);
  w.unsigned_integer(e.link_ack);
  wire::put(w, e.request);
  wire::put(w, e.epoch);
  w.unsigned_integer(e.correlation);
  w.signed_integer(e.remaining_us);
  w.text(e.trace);
  return out;
}

Result<Envelope> decode_envelope(std::string_view bytes, const Limits& limits) {
  WireReader r(bytes, limits);
  Envelope e;
  if (r.enter_array() < 11) r.fail("an envelope has 11 fields");
  e.version = static_cast<uint16_t>(r.unsigned_integer(UINT16_MAX));
  if (r.ok() && e.version != 1) {
    r.fail("protocol version " + std::to_string(e.version) + ", this side speaks 1");
  }
  const auto kind = static_cast<uint16_t>(r.unsigned_integer(UINT16_MAX));
  if (r.ok() && !msg_kind_known(kind)) r.fail("unknown message kind " + std::to_string(kind));
  e.kind = static_cast<MsgKind>(kind);
  wire::get(r, e.from);
  wire::get(r, e.to);
  e.link_seq = r.unsigned_integer(UINT64_MAX);
  e.link_ack = r.unsigned_integer(UINT64_MAX);
  wire::get(r, e.request);
  wire::get(r, e.epoch);
  e.correlation = r.unsigned_integer(UINT64_MAX);
  e.remaining_us = r.signed_integer(INT64_MIN, INT64_MAX);
  e.trace = r.text();
  r.leave();
  if (!r.ok()) return Error{ErrorCode::bad_frame, "envelope: " + r.error()};
  return e;
}

}  // namespace baton
