#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/model/model_file.h"

namespace baton::test {

// Writes GGUF files, good ones and such as no converter writes. Keys and tensors keep their order.
class GgufBuilder {
 public:
  std::uint32_t magic = 0x46554747;
  std::uint32_t version = 3;
  std::optional<std::uint64_t> tensor_count, metadata_count;  // in place of the true ones
  std::uint64_t alignment = 32;                               // of the layout; the key is separate
  std::string tail;                                           // behind the tensor data

  struct Tensor {
    std::string name;
    std::vector<std::uint64_t> dims;
    std::uint32_t type = 0;
    std::optional<std::uint64_t> offset;  // in place of the true one
    std::optional<std::uint64_t> bytes;   // of data; otherwise by type and dims
    std::string data;                     // its start; the rest is a pattern
  };

  // Sets a key: the first of that name, or a new one.
  GgufBuilder& raw(const std::string& key, std::uint32_t type, std::string value) {
    for (auto& [known, bytes] : metadata_) {
      if (known == key) {
        bytes = number(type) + value;
        return *this;
      }
    }
    return add_raw(key, type, std::move(value));
  }
  GgufBuilder& add_raw(const std::string& key, std::uint32_t type, std::string value) {
    metadata_.emplace_back(key, number(type) + value);
    return *this;
  }
  GgufBuilder& erase(const std::string& key) {
    std::erase_if(metadata_, [&](const auto& entry) { return entry.first == key; });
    return *this;
  }
  GgufBuilder& u32(const std::string& key, std::uint32_t value) {
    return raw(key, 4, number(value));
  }
  GgufBuilder& f32(const std::string& key, float value) { return raw(key, 6, number(value)); }
  GgufBuilder& boolean(const std::string& key, char value) { return raw(key, 7, {value}); }
  GgufBuilder& str(const std::string& key, std::string_view value) {
    return raw(key, 8, text(value));
  }
  GgufBuilder& strs(const std::string& key, const std::vector<std::string>& values) {
    std::string all = number(std::uint32_t{8}) + number(std::uint64_t{values.size()});
    for (const std::string& value : values) all += text(value);
    return raw(key, 9, std::move(all));
  }
  GgufBuilder& i32s(const std::string& key, const std::vector<std::int32_t>& values) {
    std::string all = number(std::uint32_t{5}) + number(std::uint64_t{values.size()});
    for (const std::int32_t value : values) all += number(value);
    return raw(key, 9, std::move(all));
  }

  GgufBuilder& tensor(Tensor tensor) {
    tensors_.push_back(std::move(tensor));
    return *this;
  }
  Tensor& tensor_named(std::string_view name) {
    for (Tensor& tensor : tensors_) {
      if (tensor.name == name) return tensor;
    }
    CHECK_MSG(false, "no such tensor");
    return tensors_.front();
  }
  void erase_tensor(std::string_view name) {
    std::erase_if(tensors_, [&](const Tensor& tensor) { return tensor.name == name; });
  }
  std::vector<Tensor>& tensors() { return tensors_; }

  std::vector<std::byte> build() const {
    std::string out = number(magic) + number(version) +
                      number(tensor_count.value_or(tensors_.size())) +
                      number(metadata_count.value_or(metadata_.size()));
    for (const auto& [key, value] : metadata_) out += text(key) + value;
    std::string data;
    for (const Tensor& tensor : tensors_) {
      out += text(tensor.name) + number(static_cast<std::uint32_t>(tensor.dims.size()));
      for (const std::uint64_t dim : tensor.dims) out += number(dim);
      out += number(tensor.type) + number(tensor.offset.value_or(data.size()));
      data += tensor.data;
      for (std::uint64_t n = tensor.data.size(); n < size_of(tensor); ++n) {
        data += static_cast<char>(n * 7 + tensor.name.size());
      }
      data.resize((data.size() + alignment - 1) / alignment * alignment);
    }
    if (!tensors_.empty()) out.resize((out.size() + alignment - 1) / alignment * alignment);
    out += data + tail;
    std::vector<std::byte> bytes(out.size());
    std::memcpy(bytes.data(), out.data(), out.size());
    return bytes;
  }

  template <class T>
  static std::string number(T value) {
    std::string out(sizeof value, '\0');
    std::memcpy(out.data(), &value, sizeof value);
    return out;
  }
  static std::string text(std::string_view value) {
    return number(std::uint64_t{value.size()}) + std::string(value);
  }

 private:
  static std::uint64_t size_of(const Tensor& tensor) {
    if (tensor.bytes) return *tensor.bytes;
    std::uint64_t elements = 1;
    for (const std::uint64_t dim : tensor.dims) elements *= dim;
    const auto type = static_cast<TensorType>(tensor.type);
    return elements / tensor_block_elements(type) * tensor_block_bytes(type);
  }

  std::vector<std::pair<std::string, std::string>> metadata_;  // key, type and value
  std::vector<Tensor> tensors_;
};

// GPT-2's character of a byte, in UTF-8.
inline std::string byte_token(int byte) {
  int code = byte;
  if (!((byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174)) {
    code = 256;
    for (int b = 0; b < byte; ++b) {
      code += !((b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174);
    }
  }
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

// A vocabulary: three control tokens, all bytes, then one token per merge.
struct Vocabulary {
  std::vector<std::string> tokens{"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  std::vector<std::int32_t> types{3, 3, 3};
  std::vector<std::string> merges;

  Vocabulary() {
    for (int byte = 0; byte < 256; ++byte) {
      tokens.push_back(byte_token(byte));
      types.push_back(1);
    }
  }
  Vocabulary& merge(const std::string& left, const std::string& right) {
    merges.push_back(left + " " + right);
    tokens.push_back(left + right);
    types.push_back(1);
    return *this;
  }
  Vocabulary& token(const std::string& text, std::int32_t type) {
    tokens.push_back(text);
    types.push_back(type);
    return *this;
  }
};

inline GgufBuilder& set_vocabulary(GgufBuilder& file, const Vocabulary& vocabulary) {
  return file.str("tokenizer.ggml.model", "gpt2")
      .strs("tokenizer.ggml.tokens", vocabulary.tokens)
      .i32s("tokenizer.ggml.token_type", vocabulary.types)
      .strs("tokenizer.ggml.merges", vocabulary.merges);
}

// A file with a tokenizer and nothing else.
inline GgufBuilder tokenizer_file(const std::string& pre, const Vocabulary& vocabulary) {
  GgufBuilder file;
  file.str("general.architecture", "llama").str("tokenizer.ggml.pre", pre);
  set_vocabulary(file, vocabulary);
  file.u32("tokenizer.ggml.bos_token_id", 1).u32("tokenizer.ggml.eos_token_id", 2);
  return file;
}

// A whole model, as small as one can be: one layer of width 32, two heads of 16, one of them kv.
inline GgufBuilder tiny_llama() {
  Vocabulary vocabulary;
  vocabulary.merge("a", "b");
  GgufBuilder file = tokenizer_file("smollm", vocabulary);
  file.u32("llama.block_count", 1)
      .u32("llama.context_length", 64)
      .u32("llama.embedding_length", 32)
      .u32("llama.feed_forward_length", 64)
      .u32("llama.attention.head_count", 2)
      .u32("llama.attention.head_count_kv", 1)
      .f32("llama.attention.layer_norm_rms_epsilon", 1e-5f)
      .f32("llama.rope.freq_base", 10000)
      .u32("llama.rope.dimension_count", 16);
  const auto add = [&](const char* name, std::vector<std::uint64_t> dims, std::uint32_t type = 0) {
    file.tensor({name, std::move(dims), type, {}, {}, {}});
  };
  add("token_embd.weight", {32, vocabulary.tokens.size()}, 8);
  add("output_norm.weight", {32});
  add("blk.0.attn_norm.weight", {32});
  add("blk.0.attn_q.weight", {32, 32}, 3);
  add("blk.0.attn_k.weight", {32, 16}, 3);
  add("blk.0.attn_v.weight", {32, 16}, 2);
  add("blk.0.attn_output.weight", {32, 32}, 1);
  add("blk.0.ffn_norm.weight", {32});
  add("blk.0.ffn_gate.weight", {32, 64}, 30);
  add("blk.0.ffn_up.weight", {32, 64});
  add("blk.0.ffn_down.weight", {64, 32});
  return file;
}

inline Result<ModelFile> open_bytes(const GgufBuilder& file) {
  return ModelFile::from_bytes(file.build(), "model.gguf");
}

}  // namespace baton::test
