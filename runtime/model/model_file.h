#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.h"

namespace baton {

// Tensor types this build computes with; the numbers are GGUF's.
enum class TensorType : std::uint32_t { f32 = 0, f16 = 1, q4_0 = 2, q4_1 = 3, q8_0 = 8, bf16 = 30 };

const char* tensor_type_name(TensorType type) noexcept;  // "Q4_1"
// Elements per block (1 for plain types) and bytes per block.
std::uint32_t tensor_block_elements(TensorType type) noexcept;
std::uint32_t tensor_block_bytes(TensorType type) noexcept;

// One tensor of a model file. `dims[0]` is the contiguous dimension: a matrix of R rows and C
// columns has dims {C, R}. `data` points into the mapping of the ModelFile that gave it out.
struct TensorInfo {
  std::string_view name;
  TensorType type = TensorType::f32;
  int dims_count = 0;  // 1..4
  std::array<std::uint64_t, 4> dims{1, 1, 1, 1};
  std::uint64_t offset = 0;  // of the data, from the start of the file
  std::span<const std::byte> data;

  std::uint64_t columns() const { return dims[0]; }
  std::uint64_t rows() const { return dims[1] * dims[2] * dims[3]; }
  std::uint64_t elements() const { return columns() * rows(); }
};

// Value types of GGUF metadata; the numbers are GGUF's.
enum class MetaType : std::uint32_t {
  u8 = 0,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  string,
  array,
  u64,
  i64,
  f64,
};

const char* meta_type_name(MetaType type) noexcept;  // "u32"

// One metadata value, still in the file. Accessors return nothing when the type does not fit.
struct MetaValue {
  std::string_view key;
  MetaType type = MetaType::u32;
  MetaType element = MetaType::u32;  // of an array
  std::uint64_t count = 1;           // elements of an array
  std::uint64_t offset = 0;          // of the value (of an array: of its first element) in the file
  std::span<const std::byte> bytes;  // the value (string and array elements with their lengths)

  std::optional<std::uint64_t> as_unsigned() const;  // any integer type, not negative
  std::optional<double> as_number() const;           // any number
  std::optional<bool> as_bool() const;
  std::optional<std::string_view> as_string() const;
  bool is_array_of(MetaType wanted) const { return type == MetaType::array && element == wanted; }
  // Elements of an array of numbers, widened; nothing if this is no such array.
  std::optional<std::vector<std::int64_t>> as_integers() const;
  // Elements of an array of strings, pointing into the file; nothing if this is no such array.
  std::optional<std::vector<std::string_view>> as_strings() const;
};

// Owns a read-only mapping of one GGUF file (version 2 or 3) and the index of what is in it. All
// views it gives out live as long as it does. Immutable after open, so const use is thread-safe.
//
// `open` proves the whole file well-formed before it returns: every length is checked against the
// bytes that remain before anything is allocated, tensors tile the data section exactly. An error
// is one sentence with file, byte offset, key or tensor, what was found and what was expected;
// its code is bad_model for a malformed file, unsupported for a sound one this build cannot use,
// not_found for a file that cannot be opened.
class ModelFile {
 public:
  static Result<ModelFile> open(const std::string& path);
  // The same over bytes in memory, for tests and fuzzing; `name` stands for the path in errors.
  static Result<ModelFile> from_bytes(std::vector<std::byte> bytes, std::string name);

  ModelFile(ModelFile&&) noexcept;
  ModelFile& operator=(ModelFile&&) noexcept;
  ~ModelFile();

  const std::string& path() const;
  std::uint64_t size_bytes() const;
  std::uint32_t version() const;
  std::uint64_t alignment() const;
  std::uint64_t data_offset() const;  // where tensor data starts

  const std::vector<MetaValue>& metadata() const;  // in file order
  const MetaValue* find(std::string_view key) const;
  const std::vector<TensorInfo>& tensors() const;  // in file order
  const TensorInfo* tensor(std::string_view name) const;

  // A cheap, deterministic identity: XXH3-128 (32 hex digits) over the file size, everything in
  // front of the tensor data, and up to 16 pieces of 64 bytes spread evenly over each tensor.
  // Equal files have equal hashes; ranks compare it when they join. Touches at most 17 pages
  // of each tensor.
  std::string fingerprint() const;

 private:
  struct State;
  explicit ModelFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// SHA-256 of a file as 64 hex digits, read in pieces; `progress`, if given, gets (done, total).
Result<std::string> sha256_of_file(
    const std::string& path,
    const std::function<void(std::uint64_t, std::uint64_t)>& progress = {});

// Makes a file that shrinks (or whose disk fails) while it is mapped end the process with exit
// status 65 and a sentence naming the file, instead of a bare SIGBUS. Process-wide; call once from
// main before the first open. Faults elsewhere keep their default action.
void install_model_fault_handler();

}  // namespace baton
