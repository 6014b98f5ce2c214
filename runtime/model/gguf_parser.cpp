#include "runtime/model/gguf_parser.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

namespace baton {

static_assert(std::endian::native == std::endian::little, "GGUF is read in place, little-endian");

namespace {

constexpr std::uint64_t kTensorsMax = 65'536;
constexpr std::uint64_t kMetadataMax = 65'536;
constexpr std::uint64_t kKeyBytesMax = 65'535;         // of the GGUF specification
constexpr std::uint64_t kTensorNameBytesMax = 64;      // of the GGUF specification
constexpr std::uint64_t kArrayElementsMax = 1u << 24;  // vocabularies have a few 10^5
constexpr std::uint64_t kAlignmentMax = 65'536;
constexpr std::uint32_t kDimsMax = 4;
constexpr std::uint32_t kTypeIdsKnown = 40;

// Names of all tensor types ever assigned; an empty one was withdrawn.
constexpr const char* kTypeNames[kTypeIdsKnown] = {
    "F32",    "F16",   "Q4_0",  "Q4_1",   "",      "",      "Q5_0",    "Q5_1",   "Q8_0",    "Q8_1",
    "Q2_K",   "Q3_K",  "Q4_K",  "Q5_K",   "Q6_K",  "Q8_K",  "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S",
    "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS", "I8",    "I16",   "I32",     "I64",    "F64",     "IQ1_M",
    "BF16",   "",      "",      "",       "TQ1_0", "TQ2_0", "",        "",       "",        "MXFP4",
};

bool supported(std::uint32_t type_id) {
  switch (static_cast<TensorType>(type_id)) {
    case TensorType::f32:
    case TensorType::f16:
    case TensorType::q4_0:
    case TensorType::q4_1:
    case TensorType::q8_0:
    case TensorType::bf16: return true;
  }
  return false;
}

// Bytes of one value of a fixed-size metadata type; 0 for strings and arrays.
std::uint64_t fixed_size(MetaType type) {
  switch (type) {
    case MetaType::u8:
    case MetaType::i8:
    case MetaType::boolean: return 1;
    case MetaType::u16:
    case MetaType::i16: return 2;
    case MetaType::u32:
    case MetaType::i32:
    case MetaType::f32: return 4;
    case MetaType::u64:
    case MetaType::i64:
    case MetaType::f64: return 8;
    case MetaType::string:
    case MetaType::array: return 0;
  }
  return 0;
}

// Walks one file once. Owns the index under construction; the first failure stops it for good:
// every step returns false after it, and `error_` holds the sentence.
class Parser {
 public:
  Parser(std::span<const std::byte> bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  Result<GgufIndex> run() {
    if (header() && all_metadata() && alignment() && all_tensors() && data_section()) {
      return std::move(index_);
    }
    return *error_;
  }

 private:
  bool fail(std::uint64_t offset, const std::string& subject, const std::string& got,
            const std::string& expected) {
    error_ = bad_model(file_, offset, subject, got, expected);
    return false;
  }

  std::uint64_t remaining() const { return bytes_.size() - at_; }

  bool need(std::uint64_t size, const std::string& subject) {
    if (size <= remaining()) return true;
    return fail(at_, subject, fmt::format("{} bytes left in the file", remaining()),
                fmt::format("{} (a truncated download?)", size));
  }

  template <class T>
  bool read(T& out, const std::string& subject) {
    if (!need(sizeof(T), subject)) return false;
    std::memcpy(&out, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return true;
  }

  // A string of at most `size_max` bytes; the view points into the file.
  bool read_string(std::string_view& out, std::uint64_t size_max, const std::string& subject) {
    const std::uint64_t start = at_;
    std::uint64_t size = 0;
    if (!read(size, subject)) return false;
    if (size > remaining()) {
      return fail(start, subject, fmt::format("a string of {} bytes", size),
                  fmt::format("at most the {} bytes left in the file", remaining()));
    }
    if (size > size_max) {
      return fail(start, subject, fmt::format("a string of {} bytes", size),
                  fmt::format("at most {}", size_max));
    }
    out = {reinterpret_cast<const char*>(bytes_.data() + at_), static_cast<std::size_t>(size)};
    at_ += size;
    return true;
  }

  bool header() {
    std::uint32_t magic = 0;
    if (!read(magic, "the magic number")) return false;
    if (magic != 0x46554747u) {  // "GGUF"
      return fail(0, "the magic number", quoted({reinterpret_cast<const char*>(bytes_.data()), 4}),
                  "'GGUF': this is no GGUF file");
    }
    if (!read(index_.version, "the version")) return false;
    if (index_.version >= 0x10000u) {
      return fail(4, "the version", fmt::format("{:#010x}, a big-endian file", index_.version),
                  "a little-endian file of version 2 or 3: convert the model anew");
    }
    if (index_.version != 2 && index_.version != 3) {
      return fail(4, "the version", std::to_string(index_.version), "2 or 3");
    }
    if (!read(tensor_count_, "the tensor count") || !read(metadata_count_, "the metadata count")) {
      return false;
    }
    // The least a tensor entry takes is 8 + 1 + 4 + 8 + 4 + 8 bytes, a metadata entry 8 + 1 + 4
    // + 1.
    return plausible(8, "the tensor count", tensor_count_, kTensorsMax, 33) &&
           plausible(16, "the metadata count", metadata_count_, kMetadataMax, 14);
  }

  bool plausible(std::uint64_t offset, const char* what, std::uint64_t count, std::uint64_t limit,
                 std::uint64_t bytes_each) {
    if (count > limit) {
      return fail(offset, what, std::to_string(count), fmt::format("at most {}", limit));
    }
    if (count > remaining() / bytes_each) {
      return fail(offset, what, std::to_string(count),
                  fmt::format("at most the {} that fit into the {} bytes left in the file",
                              remaining() / bytes_each, remaining()));
    }
    return true;
  }

  bool all_metadata() {
    index_.metadata.reserve(metadata_count_);
    for (std::uint64_t i = 0; i < metadata_count_; ++i) {
      if (!one_metadata(i)) return false;
    }
    return true;
  }

  bool one_metadata(std::uint64_t number) {
    MetaValue value;
    const std::uint64_t start = at_;
    if (!read_string(value.key, kKeyBytesMax, fmt::format("the name of metadata key {}", number))) {
      return false;
    }
    if (value.key.empty()) return fail(start, "a metadata key", "an empty name", "a name");
    const std::string subject = fmt::format("metadata key {}", quoted(value.key));
    if (!index_.metadata_by_key.emplace(value.key, index_.metadata.size()).second) {
      return fail(start, subject, "it a second time", "each key once");
    }
    if (!read_type(value.type, subject)) return false;
    if (value.type == MetaType::array && !array_head(value, subject)) return false;
    value.offset = at_;
    if (value.type == MetaType::array ? !skip_elements(value.element, value.count, subject)
                                      : !skip_elements(value.type, 1, subject)) {
      return false;
    }
    value.bytes = bytes_.subspan(value.offset, at_ - value.offset);
    index_.metadata.push_back(value);
    return true;
  }

  bool read_type(MetaType& type, const std::string& subject) {
    const std::uint64_t start = at_;
    std::uint32_t id = 0;
    if (!read(id, subject)) return false;
    if (id > static_cast<std::uint32_t>(MetaType::f64)) {
      return fail(start, subject, fmt::format("value type {}", id), "a type from 0 to 12");
    }
    type = static_cast<MetaType>(id);
    return true;
  }

  bool array_head(MetaValue& value, const std::string& subject) {
    const std::uint64_t start = at_;
    if (!read_type(value.element, subject)) return false;
    if (value.element == MetaType::array) {
      return fail(start, subject, "an array of arrays", "an array of scalars or strings");
    }
    const std::uint64_t count_at = at_;
    if (!read(value.count, subject)) return false;
    const std::uint64_t each = value.element == MetaType::string ? 8 : fixed_size(value.element);
    const std::uint64_t fits = remaining() / each;
    if (value.count > fits) {
      return fail(count_at, subject, fmt::format("an array of {} elements", value.count),
                  fmt::format("at most the {} that fit into the {} bytes left in the file", fits,
                              remaining()));
    }
    if (value.count > kArrayElementsMax) {
      return fail(count_at, subject, fmt::format("an array of {} elements", value.count),
                  fmt::format("at most {}", kArrayElementsMax));
    }
    return true;
  }

  // Moves past `count` values of one type and checks each.
  bool skip_elements(MetaType type, std::uint64_t count, const std::string& subject) {
    if (type == MetaType::string) {
      std::string_view ignored;
      for (std::uint64_t i = 0; i < count; ++i) {
        if (!read_string(ignored, std::numeric_limits<std::uint64_t>::max(), subject)) return false;
      }
      return true;
    }
    const std::uint64_t size = fixed_size(type) * count;  // count was checked against what is left
    if (!need(size, subject)) return false;
    if (type == MetaType::boolean) {
      for (std::uint64_t i = 0; i < count; ++i) {
        const auto byte = std::to_integer<unsigned>(bytes_[at_ + i]);
        if (byte > 1) return fail(at_ + i, subject, fmt::format("the boolean {}", byte), "0 or 1");
      }
    }
    at_ += size;
    return true;
  }

  bool alignment() {
    const auto found = index_.metadata_by_key.find("general.alignment");
    if (found == index_.metadata_by_key.end()) return true;
    const MetaValue& value = index_.metadata[found->second];
    const std::string subject = "metadata key 'general.alignment'";
    if (value.type != MetaType::u32) {
      return fail(value.offset, subject, fmt::format("type {}", meta_type_name(value.type)),
                  "type u32");
    }
    index_.alignment = *value.as_unsigned();
    if (!std::has_single_bit(index_.alignment) || index_.alignment < 8 ||
        index_.alignment > kAlignmentMax) {
      return fail(value.offset, subject, std::to_string(index_.alignment),
                  fmt::format("a power of two from 8 to {}", kAlignmentMax));
    }
    return true;
  }

  bool all_tensors() {
    index_.tensors.reserve(tensor_count_);
    entry_offsets_.reserve(tensor_count_);
    for (std::uint64_t i = 0; i < tensor_count_; ++i) {
      if (!one_tensor(i)) return false;
    }
    return true;
  }

  bool one_tensor(std::uint64_t number) {
    TensorInfo tensor;
    const std::uint64_t start = at_;
    if (!read_string(tensor.name, kTensorNameBytesMax,
                     fmt::format("the name of tensor {}", number))) {
      return false;
    }
    const std::string subject = fmt::format("tensor {}", quoted(tensor.name));
    if (tensor.name.empty()) return fail(start, subject, "an empty name", "a name");
    if (!index_.tensor_by_name.emplace(tensor.name, index_.tensors.size()).second) {
      return fail(start, subject, "it a second time", "each tensor once");
    }
    std::uint64_t size = 0;
    if (!read_dims(tensor, subject) || !read_tensor_type(tensor, size, subject)) return false;
    entry_offsets_.push_back(at_);
    if (!read(tensor.offset, subject)) return false;
    // The view gets its address in data_section(); until then only its size counts.
    sizes_.push_back(size);
    index_.tensors.push_back(tensor);
    return true;
  }

  bool read_dims(TensorInfo& tensor, const std::string& subject) {
    const std::uint64_t start = at_;
    std::uint32_t count = 0;
    if (!read(count, subject)) return false;
    if (count < 1 || count > kDimsMax) {
      return fail(start, subject, fmt::format("{} dimensions", count), "1 to 4");
    }
    tensor.dims_count = static_cast<int>(count);
    std::uint64_t elements = 1;
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint64_t dim_at = at_;
      if (!read(tensor.dims[i], subject)) return false;
      const std::uint64_t dim = tensor.dims[i];
      if (dim == 0 || dim > std::numeric_limits<std::int64_t>::max()) {
        return fail(dim_at, subject,
                    fmt::format("{} as dimension {}", static_cast<std::int64_t>(dim), i),
                    "a positive number");
      }
      if (__builtin_mul_overflow(elements, dim, &elements) ||
          elements > std::numeric_limits<std::int64_t>::max()) {
        return fail(dim_at, subject, "dimensions whose product exceeds 2^63 - 1 elements",
                    "a tensor that fits into the file");
      }
    }
    return true;
  }

  bool read_tensor_type(TensorInfo& tensor, std::uint64_t& size, const std::string& subject) {
    const std::uint64_t start = at_;
    std::uint32_t id = 0;
    if (!read(id, subject)) return false;
    if (id >= kTypeIdsKnown || *kTypeNames[id] == '\0') {
      return fail(start, subject, fmt::format("tensor type {}", id), "a type that GGUF defines");
    }
    if (!supported(id)) {
      error_ =
          Error{ErrorCode::unsupported,
                fmt::format("{}: byte {}, {}: type {} is not supported; supported are F32, F16, "
                            "BF16, Q4_0, Q4_1 and Q8_0: convert the model to one of them",
                            file_, start, subject, kTypeNames[id])};
      return false;
    }
    tensor.type = static_cast<TensorType>(id);
    const std::uint64_t block = tensor_block_elements(tensor.type);
    if (tensor.dims[0] % block != 0) {
      return fail(start, subject, fmt::format("rows of {} elements", tensor.dims[0]),
                  fmt::format("a multiple of {}, the block of {}", block, kTypeNames[id]));
    }
    if (__builtin_mul_overflow(tensor.elements() / block,
                               std::uint64_t{tensor_block_bytes(tensor.type)}, &size)) {
      return fail(start, subject, "a size beyond 2^64 bytes", "a tensor that fits into the file");
    }
    return true;
  }

  // Places the data section and every tensor in it: offsets in file order, without gap or overlap.
  bool data_section() {
    const std::uint64_t mask = index_.alignment - 1;
    if (index_.tensors.empty()) {
      index_.data_offset = bytes_.size();
      return true;
    }
    // at_ <= the file's size < 2^63 and alignment <= 2^16, so this sum cannot overflow.
    index_.data_offset = (at_ + mask) & ~mask;
    std::uint64_t next = 0;  // where the next tensor must start, within the data section
    for (std::size_t i = 0; i < index_.tensors.size(); ++i) {
      if (!place(index_.tensors[i], i, next)) return false;
    }
    const std::uint64_t end = index_.data_offset + next;  // with the padding of the last tensor
    if (bytes_.size() > end) {
      return fail(end, "the end of the tensor data",
                  fmt::format("{} more bytes", bytes_.size() - end), "the end of the file");
    }
    return true;
  }

  bool place(TensorInfo& tensor, std::size_t i, std::uint64_t& next) {
    const std::string subject = fmt::format("tensor {}", quoted(tensor.name));
    const std::uint64_t mask = index_.alignment - 1;
    if ((tensor.offset & mask) != 0) {
      return fail(entry_offsets_[i], subject, fmt::format("data offset {}", tensor.offset),
                  fmt::format("a multiple of the alignment, {}", index_.alignment));
    }
    if (tensor.offset != next) {
      return fail(entry_offsets_[i], subject, fmt::format("data offset {}", tensor.offset),
                  fmt::format("{}: tensors follow each other without gap or overlap", next));
    }
    std::uint64_t start = 0, end = 0;
    if (__builtin_add_overflow(index_.data_offset, tensor.offset, &start) ||
        __builtin_add_overflow(start, sizes_[i], &end) || end > bytes_.size()) {
      return fail(entry_offsets_[i], subject,
                  fmt::format("{} bytes of data from byte {} on", sizes_[i], start),
                  fmt::format("an end within the {} bytes of the file (a truncated download?)",
                              bytes_.size()));
    }
    tensor.offset = start;
    tensor.data = bytes_.subspan(start, sizes_[i]);
    next = (next + sizes_[i] + mask) & ~mask;  // bounded by the file's size plus one alignment
    return true;
  }

  std::span<const std::byte> bytes_;
  const std::string& file_;
  std::uint64_t at_ = 0;
  std::uint64_t tensor_count_ = 0;
  std::uint64_t metadata_count_ = 0;
  GgufIndex index_;
  std::vector<std::uint64_t> sizes_;          // bytes of each tensor
  std::vector<std::uint64_t> entry_offsets_;  // where each tensor's offset stands in the file
  std::optional<Error> error_;
};

}  // namespace

std::string quoted(std::string_view text) {
  constexpr std::size_t kShown = 64;
  std::string out = "'";
  for (const char c : text.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7F) {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", byte);
    }
  }
  out += text.size() > kShown ? "...'" : "'";
  return out;
}

Error bad_model(const std::string& file, std::uint64_t offset, const std::string& subject,
                const std::string& got, const std::string& expected) {
  return Error{ErrorCode::bad_model, fmt::format("{}: byte {}, {}: got {}; expected {}", file,
                                                 offset, subject, got, expected)};
}

Result<GgufIndex> parse_gguf(std::span<const std::byte> bytes, const std::string& file) {
  return Parser(bytes, file).run();
}

}  // namespace baton
