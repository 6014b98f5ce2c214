#include "runtime/model/inspect.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/utf8.h"
#include "runtime/model/chat_template.h"
#include "runtime/model/gguf_parser.h"

namespace baton {
namespace {

constexpr std::size_t kShownElements = 4;  // of an array
constexpr std::size_t kShownBytes = 60;    // of a text

// A text on one line: control characters escaped, cut between characters.
std::string one_line(std::string_view text, std::size_t bytes_max) {
  const std::string_view shown =
      text.substr(0, valid_utf8_prefix(text.substr(0, std::min(bytes_max, text.size()))));
  std::string quoted_text;
  append_json_string(quoted_text, shown);
  quoted_text = quoted_text.substr(1, quoted_text.size() - 2);
  if (shown.size() == text.size()) return quoted_text;
  return quoted_text + fmt::format("... ({} bytes)", text.size());
}

std::string scalar(const MetaValue& value) {
  if (const auto text = value.as_string()) return one_line(*text, kShownBytes);
  if (const auto flag = value.as_bool()) return *flag ? "true" : "false";
  if (const auto whole = value.as_unsigned()) return std::to_string(*whole);
  return fmt::format("{}", value.as_number().value_or(0));
}

std::string array(const MetaValue& value) {
  std::vector<std::string> shown;
  if (const auto texts = value.as_strings()) {
    for (const std::string_view text : *texts) {
      if (shown.size() == kShownElements) break;
      shown.push_back('"' + one_line(text, kShownBytes / 2) + '"');
    }
  } else if (const auto numbers = value.as_integers()) {
    for (const std::int64_t number : *numbers) {
      if (shown.size() == kShownElements) break;
      shown.push_back(std::to_string(number));
    }
  }
  const char* more = value.count > shown.size() ? ", ..." : "";
  return fmt::format("[{}{}]", fmt::join(shown, ", "), more);
}

std::string type_of(const MetaValue& value) {
  if (value.type != MetaType::array) return meta_type_name(value.type);
  return fmt::format("{}[{}]", meta_type_name(value.element), value.count);
}

std::string dims_of(const TensorInfo& tensor) {
  return fmt::format(
      "{}", fmt::join(tensor.dims.begin(), tensor.dims.begin() + tensor.dims_count, " x "));
}

std::string row(std::string_view name, const std::string& value) {
  return fmt::format("{:<16}{}\n", name, value);
}

std::string ids_text(const std::vector<TokenId>& ids, const Tokenizer& tokenizer) {
  std::string out;
  for (const TokenId id : ids) {
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", id,
                       one_line(tokenizer.bytes(id), kShownBytes));
  }
  return out.empty() ? "none" : out;
}

std::string describe_config(const ModelConfig& config) {
  return row("name", one_line(config.name, kShownBytes)) +
         row("architecture", config.architecture) +
         row("parameters", fmt::format("{:.1f} M", static_cast<double>(config.parameters) / 1e6)) +
         row("weights", config.weight_types) + row("layers", std::to_string(config.layers)) +
         row("hidden", std::to_string(config.hidden)) + row("ffn", std::to_string(config.ffn)) +
         row("heads", fmt::format("{} of {}, {} key-value", config.heads, config.head_dim,
                                  config.kv_heads)) +
         row("context", std::to_string(config.context)) +
         row("rope base", fmt::format("{}", config.rope_base)) +
         row("norm epsilon", fmt::format("{}", config.norm_eps)) +
         row("output", config.tied ? "tied to the embedding" : "a matrix of its own");
}

std::string describe_tokenizer(const ModelFile& file) {
  const Result<Tokenizer> loaded = Tokenizer::load(file);
  if (!loaded) return row("tokenizer", "unusable: " + loaded.error().text);
  const Tokenizer& tokenizer = *loaded;
  const Result<ChatTemplate> chat = ChatTemplate::load(file, tokenizer);
  return row("vocabulary", std::to_string(tokenizer.vocab_size())) +
         row("pre-tokenizer", tokenizer.pre_tokenizer()) +
         row("bos", tokenizer.bos() ? ids_text({*tokenizer.bos()}, tokenizer) +
                                          (tokenizer.adds_bos() ? ", added" : ", not added")
                                    : "none") +
         row("stop", ids_text(tokenizer.stop_ids(), tokenizer)) +
         row("chat template", chat ? fmt::format("{} bytes", chat->source().size())
                                   : "unusable: " + chat.error().text);
}

std::string describe_metadata(const ModelFile& file) {
  std::string out = "\nmetadata\n";
  for (const MetaValue& value : file.metadata()) {
    out += fmt::format("  {:<40} {:<14} {}\n", one_line(value.key, kShownBytes), type_of(value),
                       value.type == MetaType::array ? array(value) : scalar(value));
  }
  return out;
}

std::string describe_tensors(const ModelFile& file) {
  std::string out = "\ntensors\n";
  for (const TensorInfo& tensor : file.tensors()) {
    out += fmt::format("  {:<40} {:<5} {:<18} byte {:>12}, {:>11} bytes\n",
                       one_line(tensor.name, kShownBytes), tensor_type_name(tensor.type),
                       dims_of(tensor), tensor.offset, tensor.data.size());
  }
  return out;
}

Json config_json(const ModelConfig& config) {
  const auto whole = [](std::uint64_t value) { return Json(static_cast<std::int64_t>(value)); };
  Json out = Json::object();
  out.set("name", config.name);
  out.set("architecture", config.architecture);
  out.set("parameters", whole(config.parameters));
  out.set("weight_types", config.weight_types);
  out.set("layers", whole(config.layers));
  out.set("hidden", whole(config.hidden));
  out.set("ffn", whole(config.ffn));
  out.set("heads", whole(config.heads));
  out.set("kv_heads", whole(config.kv_heads));
  out.set("head_dim", whole(config.head_dim));
  out.set("context", whole(config.context));
  out.set("vocab", whole(config.vocab));
  out.set("rope_base", double{config.rope_base});
  out.set("norm_eps", double{config.norm_eps});
  out.set("tied", config.tied);
  return out;
}

Json tokenizer_json(const ModelFile& file) {
  Json out = Json::object();
  const Result<Tokenizer> tokenizer = Tokenizer::load(file);
  if (!tokenizer) {
    out.set("error", tokenizer.error().text);
    return out;
  }
  const auto id = [](std::optional<TokenId> token) {
    return token ? Json(std::int64_t{*token}) : Json();
  };
  Json stop = Json::array();
  for (const TokenId token : tokenizer->stop_ids()) stop.push_back(std::int64_t{token});
  out.set("vocab", std::int64_t{tokenizer->vocab_size()});
  out.set("pre_tokenizer", tokenizer->pre_tokenizer());
  out.set("bos", id(tokenizer->bos()));
  out.set("eos", id(tokenizer->eos()));
  out.set("adds_bos", tokenizer->adds_bos());
  out.set("adds_eos", tokenizer->adds_eos());
  out.set("stop_ids", std::move(stop));
  const Result<ChatTemplate> chat = ChatTemplate::load(file, *tokenizer);
  out.set("chat_template", chat ? Json(chat->source()) : Json());
  if (!chat) out.set("chat_template_error", chat.error().text);
  return out;
}

}  // namespace

std::string describe_model(const ModelFile& file, const InspectOptions& options) {
  std::string out =
      row("file", one_line(file.path(), 4096)) +
      row("format",
          fmt::format("GGUF version {}, alignment {}", file.version(), file.alignment())) +
      row("size", fmt::format("{} bytes, {} tensors, data from byte {}", file.size_bytes(),
                              file.tensors().size(), file.data_offset())) +
      row("fingerprint", file.fingerprint());
  const Result<ModelConfig> config = read_model_config(file);
  out += config ? describe_config(*config) : row("model", "unusable: " + config.error().text);
  out += describe_tokenizer(file);
  if (options.metadata) out += describe_metadata(file);
  if (options.tensors) out += describe_tensors(file);
  return out;
}

Json describe_model_json(const ModelFile& file) {
  Json out = Json::object();
  out.set("file", file.path());
  out.set("version", std::int64_t{file.version()});
  out.set("alignment", static_cast<std::int64_t>(file.alignment()));
  out.set("size_bytes", static_cast<std::int64_t>(file.size_bytes()));
  out.set("data_offset", static_cast<std::int64_t>(file.data_offset()));
  out.set("fingerprint", file.fingerprint());
  const Result<ModelConfig> config = read_model_config(file);
  if (config) {
    out.set("config", config_json(*config));
  } else {
    out.set("config_error", config.error().text);
  }
  out.set("tokenizer", tokenizer_json(file));
  Json metadata = Json::object();
  for (const MetaValue& value : file.metadata()) {
    Json entry = Json::object();
    entry.set("type", type_of(value));
    entry.set("value", value.type == MetaType::array ? array(value) : scalar(value));
    metadata.as_object().push_back({std::string(value.key), std::move(entry)});
  }
  out.set("metadata", std::move(metadata));
  Json tensors = Json::array();
  for (const TensorInfo& tensor : file.tensors()) {
    Json dims = Json::array();
    for (int i = 0; i < tensor.dims_count; ++i) {
      dims.push_back(static_cast<std::int64_t>(tensor.dims[static_cast<std::size_t>(i)]));
    }
    Json entry = Json::object();
    entry.set("name", tensor.name);
    entry.set("type", tensor_type_name(tensor.type));
    entry.set("dims", std::move(dims));
    entry.set("offset", static_cast<std::int64_t>(tensor.offset));
    entry.set("bytes", static_cast<std::int64_t>(tensor.data.size()));
    tensors.push_back(std::move(entry));
  }
  out.set("tensors", std::move(tensors));
  return out;
}

Result<TokenizeReport> tokenize_report(const Tokenizer& tokenizer, std::string_view text,
                                       bool parse_special) {
  Result<std::vector<TokenId>> ids = tokenizer.encode(text, parse_special);
  if (!ids) return ids.error();
  TokenizeReport report;
  report.ids = std::move(ids).value();
  for (const TokenId id : report.ids) {
    std::string piece;
    append_json_string(piece, tokenizer.bytes(id));
    report.pieces.push_back(piece.substr(1, piece.size() - 2));
  }
  return report;
}

std::string tokenize_table(const TokenizeReport& report) {
  std::string out;
  for (std::size_t i = 0; i < report.ids.size(); ++i) {
    out += fmt::format("{:>6}  {:>7}  '{}'\n", i, report.ids[i], report.pieces[i]);
  }
  return out;
}

}  // namespace baton
