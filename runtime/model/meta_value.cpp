#include <cstring>

#include "runtime/base/check.h"
#include "runtime/model/model_file.h"

namespace baton {
namespace {

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

bool is_integer(MetaType type) {
  switch (type) {
    case MetaType::u8:
    case MetaType::i8:
    case MetaType::u16:
    case MetaType::i16:
    case MetaType::u32:
    case MetaType::i32:
    case MetaType::u64:
    case MetaType::i64: return true;
    case MetaType::f32:
    case MetaType::f64:
    case MetaType::boolean:
    case MetaType::string:
    case MetaType::array: return false;
  }
  return false;
}

// One integer, widened; `size` gets its bytes. A u64 beyond 2^63 - 1 comes out negative.
std::int64_t load_integer(MetaType type, const std::byte* from, std::size_t& size) {
  switch (type) {
    case MetaType::u8: size = 1; return load<std::uint8_t>(from);
    case MetaType::i8: size = 1; return load<std::int8_t>(from);
    case MetaType::u16: size = 2; return load<std::uint16_t>(from);
    case MetaType::i16: size = 2; return load<std::int16_t>(from);
    case MetaType::u32: size = 4; return load<std::uint32_t>(from);
    case MetaType::i32: size = 4; return load<std::int32_t>(from);
    case MetaType::u64:
    case MetaType::i64: size = 8; return load<std::int64_t>(from);
    case MetaType::f32:
    case MetaType::f64:
    case MetaType::boolean:
    case MetaType::string:
    case MetaType::array: break;
  }
  CHECK_MSG(false, "not an integer type");
  return 0;
}

std::string_view load_string(const std::byte* from) {
  return {reinterpret_cast<const char*>(from + 8),
          static_cast<std::size_t>(load<std::uint64_t>(from))};
}

}  // namespace

const char* tensor_type_name(TensorType type) noexcept {
  switch (type) {
    case TensorType::f32: return "F32";
    case TensorType::f16: return "F16";
    case TensorType::q4_0: return "Q4_0";
    case TensorType::q4_1: return "Q4_1";
    case TensorType::q8_0: return "Q8_0";
    case TensorType::bf16: return "BF16";
  }
  return "unknown";
}

std::uint32_t tensor_block_elements(TensorType type) noexcept {
  switch (type) {
    case TensorType::q4_0:
    case TensorType::q4_1:
    case TensorType::q8_0: return 32;
    case TensorType::f32:
    case TensorType::f16:
    case TensorType::bf16: return 1;
  }
  return 1;
}

std::uint32_t tensor_block_bytes(TensorType type) noexcept {
  switch (type) {
    case TensorType::f32: return 4;
    case TensorType::f16:
    case TensorType::bf16: return 2;
    case TensorType::q4_0: return 18;
    case TensorType::q4_1: return 20;
    case TensorType::q8_0: return 34;
  }
  return 1;
}

const char* meta_type_name(MetaType type) noexcept {
  constexpr const char* kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                    "bool", "string", "array", "u64", "i64", "f64"};
  const auto id = static_cast<std::size_t>(type);
  return id < std::size(kNames) ? kNames[id] : "unknown";
}

std::optional<std::uint64_t> MetaValue::as_unsigned() const {
  if (!is_integer(type)) return std::nullopt;
  std::size_t size = 0;
  const std::int64_t value = load_integer(type, bytes.data(), size);
  if (type == MetaType::u64) return static_cast<std::uint64_t>(value);
  if (value < 0) return std::nullopt;
  return static_cast<std::uint64_t>(value);
}

std::optional<double> MetaValue::as_number() const {
  if (type == MetaType::f32) return load<float>(bytes.data());
  if (type == MetaType::f64) return load<double>(bytes.data());
  if (!is_integer(type)) return std::nullopt;
  std::size_t size = 0;
  const std::int64_t value = load_integer(type, bytes.data(), size);
  return type == MetaType::u64 ? static_cast<double>(static_cast<std::uint64_t>(value))
                               : static_cast<double>(value);
}

std::optional<bool> MetaValue::as_bool() const {
  if (type != MetaType::boolean) return std::nullopt;
  return bytes[0] != std::byte{0};
}

std::optional<std::string_view> MetaValue::as_string() const {
  if (type != MetaType::string) return std::nullopt;
  return load_string(bytes.data());
}

std::optional<std::vector<std::int64_t>> MetaValue::as_integers() const {
  if (type != MetaType::array || !is_integer(element)) return std::nullopt;
  std::vector<std::int64_t> out;
  out.reserve(count);
  const std::byte* at = bytes.data();
  for (std::uint64_t i = 0; i < count; ++i) {
    std::size_t size = 0;
    out.push_back(load_integer(element, at, size));
    at += size;
  }
  return out;
}

std::optional<std::vector<std::string_view>> MetaValue::as_strings() const {
  if (!is_array_of(MetaType::string)) return std::nullopt;
  std::vector<std::string_view> out;
  out.reserve(count);
  const std::byte* at = bytes.data();
  for (std::uint64_t i = 0; i < count; ++i) {
    out.push_back(load_string(at));
    at += 8 + out.back().size();
  }
  return out;
}

}  // namespace baton
