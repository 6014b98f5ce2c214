#include "runtime/model/chat_template.h"

#include <fmt/format.h>

#include <utility>

#include "runtime/base/utf8.h"
#include "runtime/model/gguf_parser.h"
#include "runtime/model/jinja_evaluator.h"
#include "runtime/model/jinja_parser.h"

namespace baton {
namespace {

constexpr std::size_t kSourceBytesMax = 256u << 10;

// Names that the runtime sets; a request cannot replace them.
constexpr std::string_view kOwnNames[] = {
    "messages", "tools",     "documents", "add_generation_prompt", "bos_token",   "eos_token",
    "range",    "namespace", "dict",      "raise_exception",       "strftime_now"};

bool is_own_name(std::string_view name) {
  for (const std::string_view own : kOwnNames) {
    if (name == own) return true;
  }
  return false;
}

}  // namespace

struct ChatTemplate::State {
  std::string source;
  std::string bos, eos;
  jinja::Body body;
};

ChatTemplate::ChatTemplate(std::unique_ptr<const State> state) : state_(std::move(state)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::compile(std::string source, std::string bos, std::string eos) {
  if (source.size() > kSourceBytesMax) {
    return Error{ErrorCode::bad_model,
                 fmt::format("the chat template has {} bytes; at most {} are accepted",
                             source.size(), kSourceBytesMax)};
  }
  if (const std::size_t valid = valid_utf8_prefix(source); valid != source.size()) {
    return Error{ErrorCode::bad_model,
                 fmt::format("the chat template is not UTF-8 at byte {}", valid)};
  }
  Result<std::vector<jinja::Token>> tokens = jinja::tokenize(source);
  if (!tokens) return tokens.error();
  Result<jinja::Body> body = jinja::parse(std::move(tokens).value());
  if (!body) return body.error();
  auto state = std::make_unique<State>();
  state->source = std::move(source);
  state->bos = std::move(bos);
  state->eos = std::move(eos);
  state->body = std::move(body).value();
  return ChatTemplate(std::move(state));
}

Result<ChatTemplate> ChatTemplate::load(const ModelFile& file, const Tokenizer& tokenizer) {
  const MetaValue* value = file.find("tokenizer.chat_template");
  if (value == nullptr) {
    return Error{
        ErrorCode::not_found,
        fmt::format("{}: the model has no chat template ('tokenizer.chat_template')", file.path())};
  }
  const std::optional<std::string_view> source = value->as_string();
  if (!source) {
    return bad_model(file.path(), value->offset, "metadata key 'tokenizer.chat_template'",
                     fmt::format("type {}", meta_type_name(value->type)), "a string");
  }
  const auto text_of = [&](const std::optional<TokenId>& id) {
    return id ? std::string(tokenizer.bytes(*id)) : std::string();
  };
  Result<ChatTemplate> compiled =
      compile(std::string(*source), text_of(tokenizer.bos()), text_of(tokenizer.eos()));
  if (compiled) return compiled;
  return Error{compiled.error().code,
               fmt::format("{}: byte {}, {}", file.path(), value->offset, compiled.error().text)};
}

Result<std::vector<PromptSegment>> ChatTemplate::render(const ChatInput& input) const {
  jinja::Evaluator::Variables globals;
  globals.emplace_back("messages", jinja::from_request(input.messages));
  globals.emplace_back("tools", jinja::from_request(input.tools));
  globals.emplace_back("documents", jinja::None{});
  globals.emplace_back("add_generation_prompt", input.add_generation_prompt);
  globals.emplace_back("bos_token", jinja::make_text(state_->bos));
  globals.emplace_back("eos_token", jinja::make_text(state_->eos));
  if (!input.variables.is_object()) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("the variables of a chat template are a {}; expected an object",
                             input.variables.type_name())};
  }
  for (const Json::Member& member : input.variables.as_object()) {
    if (is_own_name(member.name)) {
      return Error{ErrorCode::invalid_argument,
                   fmt::format("the chat template variable {} is set by the server; choose another "
                               "name",
                               quoted(member.name))};
    }
    globals.emplace_back(member.name, jinja::from_request(member.value));
  }
  const jinja::RunLimits limits;
  jinja::Evaluator evaluator(limits, std::move(globals), input.now_unix_s);
  Result<jinja::Text> text = evaluator.render(state_->body);
  if (!text) return text.error();
  std::vector<PromptSegment> segments;
  std::size_t start = 0;
  for (const jinja::Text::Run& run : text->runs()) {
    segments.push_back({text->bytes().substr(start, run.end - start), run.content});
    start = run.end;
  }
  return segments;
}

const std::string& ChatTemplate::source() const {
  return state_->source;
}

Json chat_messages(const std::vector<std::pair<std::string, std::string>>& messages) {
  Json out = Json::array();
  for (const auto& [role, content] : messages) {
    Json message = Json::object();
    message.set("role", role);
    message.set("content", content);
    out.push_back(std::move(message));
  }
  return out;
}

std::string segments_text(const std::vector<PromptSegment>& segments) {
  std::string text;
  for (const PromptSegment& segment : segments) text += segment.text;
  return text;
}

}  // namespace baton
