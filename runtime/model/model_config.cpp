#include "runtime/model/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <unordered_set>
#include <utility>

#include "runtime/model/gguf_parser.h"

namespace baton {
namespace {

constexpr std::uint32_t kLayersMax = 512;
constexpr std::uint32_t kWidthMax = 1u << 20;  // hidden and ffn
constexpr std::uint32_t kHeadsMax = 1u << 12;
constexpr std::uint32_t kContextMax = 1u << 24;
constexpr std::uint32_t kVocabMax = 1u << 24;

// Reads one file's configuration. The first failure stops it: each step returns false after it, and
// `error_` holds the sentence.
class ConfigReader {
 public:
  explicit ConfigReader(const ModelFile& file) : file_(file) {}

  Result<ModelConfig> run() {
    if (architecture() && sizes() && attention() && rope() && refused_features() && vocabulary() &&
        all_tensors() && no_other_tensor()) {
      names_and_totals();
      return std::move(config_);
    }
    return *error_;
  }

 private:
  bool fail(const MetaValue& at, const std::string& got, const std::string& expected) {
    error_ = bad_model(file_.path(), at.offset, "metadata key " + quoted(at.key), got, expected);
    return false;
  }

  bool unsupported(const std::string& sentence) {
    error_ = Error{ErrorCode::unsupported, file_.path() + ": " + sentence};
    return false;
  }

  const MetaValue* find(const std::string& key) const { return file_.find(key); }

  const MetaValue* require(const std::string& key) {
    const MetaValue* value = find(key);
    if (value == nullptr) {
      error_ = bad_model(file_.path(), 0, "metadata key " + quoted(key), "no such key",
                         "one, as in every llama model");
    }
    return value;
  }

  // A whole number from `low` to `high`.
  bool number(const MetaValue& value, std::uint32_t low, std::uint32_t high, std::uint32_t& out) {
    const std::optional<std::uint64_t> found = value.as_unsigned();
    if (!found || *found < low || *found > high) {
      return fail(value, shown(value), fmt::format("a whole number from {} to {}", low, high));
    }
    out = static_cast<std::uint32_t>(*found);
    return true;
  }

  bool required_number(const std::string& key, std::uint32_t low, std::uint32_t high,
                       std::uint32_t& out) {
    const MetaValue* value = require(key);
    return value != nullptr && number(*value, low, high, out);
  }

  // A finite number above 0.
  bool positive_real(const MetaValue& value, float& out) {
    const std::optional<double> found = value.as_number();
    if (!found || !std::isfinite(*found) || *found <= 0 ||
        *found > std::numeric_limits<float>::max() || static_cast<float>(*found) == 0.0f) {
      return fail(value, shown(value), "a finite number above 0");
    }
    out = static_cast<float>(*found);
    return true;
  }

  static std::string shown(const MetaValue& value) {
    if (const auto text = value.as_string()) return quoted(*text);
    if (const auto whole = value.as_unsigned()) return std::to_string(*whole);
    if (const auto real = value.as_number()) return fmt::format("{}", *real);
    return fmt::format("a value of type {}", meta_type_name(value.type));
  }

  bool architecture() {
    const MetaValue* value = require("general.architecture");
    if (value == nullptr) return false;
    const std::optional<std::string_view> name = value->as_string();
    if (!name) return fail(*value, shown(*value), "a string");
    if (*name != "llama") {
      return unsupported(
          fmt::format("architecture {} is not supported; supported is 'llama' (Llama, "
                      "SmolLM, Mistral and others that share it)",
                      quoted(*name)));
    }
    config_.architecture = std::string(*name);
    const MetaValue* parts = find("split.count");
    if (parts != nullptr && parts->as_unsigned().value_or(2) > 1) {
      return unsupported(
          "the model is split into several files, which is not supported; supported "
          "is one file: join the parts with llama-gguf-split --merge");
    }
    return true;
  }

  bool sizes() {
    return required_number("llama.block_count", 1, kLayersMax, config_.layers) &&
           required_number("llama.embedding_length", 1, kWidthMax, config_.hidden) &&
           required_number("llama.feed_forward_length", 1, kWidthMax, config_.ffn) &&
           required_number("llama.context_length", 1, kContextMax, config_.context);
  }

  bool attention() {
    const std::string prefix = "llama.attention.";
    if (!required_number(prefix + "head_count", 1, kHeadsMax, config_.heads)) return false;
    const MetaValue& heads = *find(prefix + "head_count");
    if (config_.hidden % config_.heads != 0) {
      return fail(heads, fmt::format("{} heads", config_.heads),
                  fmt::format("a number that divides the embedding length, {}", config_.hidden));
    }
    config_.head_dim = config_.hidden / config_.heads;
    if (config_.head_dim % 2 != 0) {
      return fail(heads, fmt::format("heads of {} values", config_.head_dim), "an even number");
    }
    config_.kv_heads = config_.heads;
    if (const MetaValue* value = find(prefix + "head_count_kv")) {
      if (!number(*value, 1, config_.heads, config_.kv_heads)) return false;
      if (config_.heads % config_.kv_heads != 0) {
        return fail(*value, fmt::format("{} key-value heads", config_.kv_heads),
                    fmt::format("a number that divides the {} heads", config_.heads));
      }
    }
    for (const char* key : {"key_length", "value_length"}) {
      const MetaValue* value = find(prefix + key);
      if (value == nullptr) continue;
      std::uint32_t length = 0;
      if (!number(*value, 1, kWidthMax, length)) return false;
      if (length != config_.head_dim) {
        return unsupported(
            fmt::format("{} is {}, which is not supported; supported are heads of {} "
                        "values, the embedding length divided by the head count",
                        quoted(value->key), length, config_.head_dim));
      }
    }
    const MetaValue* epsilon = require(prefix + "layer_norm_rms_epsilon");
    return epsilon != nullptr && positive_real(*epsilon, config_.norm_eps);
  }

  bool rope() {
    if (const MetaValue* base = find("llama.rope.freq_base")) {
      if (!positive_real(*base, config_.rope_base)) return false;
    }
    if (const MetaValue* value = find("llama.rope.dimension_count")) {
      std::uint32_t dims = 0;
      if (!number(*value, 1, kWidthMax, dims)) return false;
      if (dims % 2 != 0) {
        return fail(*value, std::to_string(dims),
                    fmt::format("{}, an even number", config_.head_dim));
      }
      if (dims > config_.head_dim) {
        return fail(*value, std::to_string(dims),
                    fmt::format("{}, the length of a head", config_.head_dim));
      }
      if (dims != config_.head_dim) {
        return unsupported(
            fmt::format("rotary embedding of {} of {} dimensions is not supported; "
                        "supported is rotation of all of them",
                        dims, config_.head_dim));
      }
    }
    return rope_scaling();
  }

  bool rope_scaling() {
    const MetaValue* type = find("llama.rope.scaling.type");
    const std::string kind =
        type == nullptr ? "linear" : std::string(type->as_string().value_or("of another type"));
    for (const char* key : {"llama.rope.scaling.factor", "llama.rope.scale_linear"}) {
      const MetaValue* factor = find(key);
      if (factor == nullptr || kind == "none") continue;
      float value = 0;
      if (!positive_real(*factor, value)) return false;
      if (value != 1.0f) {
        return unsupported(
            fmt::format("rope scaling {} with factor {} is not supported; supported "
                        "are no scaling and linear scaling with factor 1",
                        quoted(kind), value));
      }
    }
    if (kind != "none" && kind != "linear") {
      return unsupported(
          fmt::format("rope scaling {} is not supported; supported are no scaling and "
                      "linear scaling with factor 1",
                      quoted(kind)));
    }
    return true;
  }

  // Keys that change the mathematics: known, but not computed here.
  bool refused_features() {
    for (const char* key :
         {"llama.expert_count", "llama.attention.sliding_window", "llama.logit_scale",
          "llama.embedding_scale", "llama.residual_scale", "llama.attention.scale"}) {
      const MetaValue* value = find(key);
      if (value == nullptr || value->as_number().value_or(1) == 0) continue;
      return unsupported(
          fmt::format("{} is {}, which is not supported; supported are dense llama "
                      "models without it",
                      quoted(key), shown(*value)));
    }
    const MetaValue* causal = find("llama.attention.causal");
    if (causal != nullptr && causal->as_bool() == false) {
      return unsupported(
          "attention that is not causal is not supported; supported are models that "
          "generate text from left to right");
    }
    return true;
  }

  bool vocabulary() {
    const TensorInfo* embedding = file_.tensor("token_embd.weight");
    if (embedding == nullptr) return missing("token_embd.weight");
    const std::uint64_t rows = embedding->rows();
    if (rows < 1 || rows > kVocabMax) {
      return wrong(*embedding, fmt::format("{} rows", rows), fmt::format("1 to {}", kVocabMax));
    }
    config_.vocab = static_cast<std::uint32_t>(rows);
    const MetaValue* tokens = find("tokenizer.ggml.tokens");
    if (tokens != nullptr && tokens->type == MetaType::array && tokens->count != rows) {
      return fail(*tokens, fmt::format("{} tokens", tokens->count),
                  fmt::format("{}, the rows of tensor 'token_embd.weight'", rows));
    }
    const MetaValue* size = find("llama.vocab_size");
    if (size != nullptr && size->as_unsigned() != rows) {
      return fail(*size, shown(*size),
                  fmt::format("{}, the rows of tensor 'token_embd.weight'", rows));
    }
    return true;
  }

  bool missing(const std::string& name) {
    error_ = bad_model(file_.path(), file_.data_offset(), "tensor " + quoted(name),
                       "no such tensor", "one, as in every llama model");
    return false;
  }

  bool wrong(const TensorInfo& tensor, const std::string& got, const std::string& expected) {
    error_ = bad_model(file_.path(), tensor.offset, "tensor " + quoted(tensor.name), got, expected);
    return false;
  }

  // A tensor that must be there with `rows` (0: a vector) and `columns`.
  bool expect(const std::string& name, std::uint64_t columns, std::uint64_t rows) {
    const TensorInfo* tensor = file_.tensor(name);
    if (tensor == nullptr) return missing(name);
    known_.insert(tensor->name);
    config_.parameters += tensor->elements();
    const bool vector = rows == 0;
    if (tensor->columns() != columns || tensor->rows() != (vector ? 1 : rows)) {
      return wrong(*tensor, fmt::format("{} rows of {}", tensor->rows(), tensor->columns()),
                   fmt::format("{} of {}", vector ? 1 : rows, columns));
    }
    if (vector && tensor->type != TensorType::f32) {
      return unsupported(
          fmt::format("tensor {} of type {} is not supported; supported for norms is "
                      "F32",
                      quoted(name), tensor_type_name(tensor->type)));
    }
    return true;
  }

  bool all_tensors() {
    const std::uint64_t hidden = config_.hidden, ffn = config_.ffn, kv = config_.kv_width();
    if (!expect("token_embd.weight", hidden, config_.vocab)) return false;
    if (!expect("output_norm.weight", hidden, 0)) return false;
    config_.tied = file_.tensor("output.weight") == nullptr;
    if (!config_.tied && !expect("output.weight", hidden, config_.vocab)) return false;
    for (std::uint32_t n = 0; n < config_.layers; ++n) {
      if (!expect(layer_tensor(n, "attn_norm"), hidden, 0) ||
          !expect(layer_tensor(n, "attn_q"), hidden, hidden) ||
          !expect(layer_tensor(n, "attn_k"), hidden, kv) ||
          !expect(layer_tensor(n, "attn_v"), hidden, kv) ||
          !expect(layer_tensor(n, "attn_output"), hidden, hidden) ||
          !expect(layer_tensor(n, "ffn_norm"), hidden, 0) ||
          !expect(layer_tensor(n, "ffn_gate"), hidden, ffn) ||
          !expect(layer_tensor(n, "ffn_up"), hidden, ffn) ||
          !expect(layer_tensor(n, "ffn_down"), ffn, hidden)) {
        return false;
      }
    }
    return true;
  }

  // A tensor that nothing here reads (a bias, rope factors) would silently change the answers.
  bool no_other_tensor() {
    for (const TensorInfo& tensor : file_.tensors()) {
      if (known_.contains(tensor.name)) continue;
      return unsupported(
          fmt::format("tensor {} is not supported; supported are llama models of {} "
                      "layers without biases, rope factors or experts",
                      quoted(tensor.name), config_.layers));
    }
    return true;
  }

  void names_and_totals() {
    const MetaValue* name = find("general.name");
    if (name != nullptr) config_.name = std::string(name->as_string().value_or(""));
    if (config_.name.empty()) {
      const std::string& path = file_.path();
      config_.name = path.substr(path.find_last_of('/') + 1);
      const std::size_t ending = config_.name.rfind(".gguf");
      if (ending != std::string::npos && ending > 0) config_.name.resize(ending);
    }
    std::map<std::string, int> counts;
    for (const TensorInfo& tensor : file_.tensors()) ++counts[tensor_type_name(tensor.type)];
    std::vector<std::pair<std::string, int>> by_count(counts.begin(), counts.end());
    std::stable_sort(by_count.begin(), by_count.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    for (const auto& [type, count] : by_count) {
      config_.weight_types +=
          fmt::format("{}{} ({})", config_.weight_types.empty() ? "" : ", ", type, count);
    }
  }

  const ModelFile& file_;
  ModelConfig config_;
  std::unordered_set<std::string_view> known_;  // names of the tensors that are computed with
  std::optional<Error> error_;
};

}  // namespace

Result<ModelConfig> read_model_config(const ModelFile& file) {
  return ConfigReader(file).run();
}

std::string layer_tensor(std::uint32_t layer, const char* part) {
  return fmt::format("blk.{}.{}.weight", layer, part);
}

}  // namespace baton
