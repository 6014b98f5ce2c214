#include "launch/cli/batch_file.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <set>

#include "runtime/base/json.h"

namespace baton::cli {
namespace {

// Reads the members of one line; the first that does not fit sets `wrong`.
class LineReader {
 public:
  explicit LineReader(const Json& line) : line_(line) {}

  template <class T>
  void integer(const char* name, T& value) {
    const Json* member = take(name);
    if (!member) return;
    using Range = std::numeric_limits<T>;
    if (!member->is_integer() || member->as_integer() < static_cast<int64_t>(Range::min()) ||
        (sizeof(T) < 8 && member->as_integer() > static_cast<int64_t>(Range::max()))) {
      return expect(name, "an integer in range", *member);
    }
    value = static_cast<T>(member->as_integer());
  }
  template <class T>
  void optional_integer(const char* name, std::optional<T>& value) {
    if (!line_.find(name)) return;
    T number{};
    integer(name, number);
    value = number;
  }
  void number(const char* name, float& value) {
    const Json* member = take(name);
    if (!member) return;
    if (!member->is_number()) return expect(name, "a number", *member);
    value = static_cast<float>(member->as_number());
  }
  void boolean(const char* name, bool& value) {
    const Json* member = take(name);
    if (!member) return;
    if (!member->is_bool()) return expect(name, "true or false", *member);
    value = member->as_bool();
  }
  void text(const char* name, std::string& value) {
    const Json* member = take(name);
    if (!member) return;
    if (!member->is_string()) return expect(name, "a string", *member);
    value = member->as_string();
  }
  void ids(const char* name, std::vector<int32_t>& value) {
    const Json* member = take(name);
    if (!member) return;
    if (!member->is_array()) return expect(name, "an array of token ids", *member);
    value.clear();
    for (const Json& item : member->as_array()) {
      if (!item.is_integer() || item.as_integer() < 0 || item.as_integer() > INT32_MAX) {
        return expect(name, "token ids", item);
      }
      value.push_back(static_cast<int32_t>(item.as_integer()));
    }
  }
  void texts(const char* name, std::vector<std::string>& value) {
    const Json* member = take(name);
    if (!member) return;
    value.clear();
    if (member->is_string()) return value.push_back(member->as_string());
    if (!member->is_array()) return expect(name, "a string or strings", *member);
    for (const Json& item : member->as_array()) {
      if (!item.is_string()) return expect(name, "strings", item);
      value.push_back(item.as_string());
    }
  }
  void messages(std::vector<client::Message>& value) {
    const Json* member = take("messages");
    if (!member) return;
    if (!member->is_array()) return expect("messages", "an array", *member);
    for (const Json& item : member->as_array()) {
      const Json* role = item.find("role");
      const Json* content = item.find("content");
      if (!role || !content || !role->is_string() || !content->is_string()) {
        return expect("messages", "objects with the strings role and content", item);
      }
      value.push_back({role->as_string(), content->as_string()});
    }
  }
  void biases(std::vector<std::pair<int32_t, float>>& value) {
    const Json* member = take("logit_bias");
    if (!member) return;
    if (!member->is_object()) return expect("logit_bias", "an object", *member);
    for (const Json::Member& entry : member->as_object()) {
      char* end = nullptr;
      const long id = std::strtol(entry.name.c_str(), &end, 10);
      if (entry.name.empty() || *end || !entry.value.is_number()) {
        return expect("logit_bias", "\"token id\": number", entry.value);
      }
      value.emplace_back(static_cast<int32_t>(id), static_cast<float>(entry.value.as_number()));
    }
  }
  void refuse_unknown() {
    for (const Json::Member& member : line_.as_object()) {
      if (!known_.contains(member.name) && wrong.empty()) {
        wrong = "unknown member '" + member.name.substr(0, 60) + "'";
      }
    }
  }

  std::string wrong;

 private:
  const Json* take(const char* name) {
    known_.insert(name);
    const Json* member = line_.find(name);
    return member && member->is_null() ? nullptr : member;
  }
  void expect(const char* name, const char* expected, const Json& got) {
    if (wrong.empty()) {
      wrong = std::string("'") + name + "' must be " + expected + ", got " + got.type_name();
    }
  }

  const Json& line_;
  std::set<std::string> known_;
};

std::string read_line(const Json& json, BatchLine& line) {
  if (!json.is_object()) return std::string("expected an object, got ") + json.type_name();
  LineReader reader(json);
  client::Request& r = line.request;
  const Json* id = json.find("id");
  if (id && id->is_integer()) {
    line.id = std::to_string(id->as_integer());
    int64_t unused = 0;
    reader.integer("id", unused);
  } else {
    reader.text("id", line.id);
  }
  reader.messages(r.messages);
  reader.text("prompt", r.text);
  reader.ids("prompt_ids", r.ids);
  reader.optional_integer("max_tokens", r.max_tokens);
  reader.integer("min_tokens", r.min_tokens);
  reader.number("temperature", r.temperature);
  reader.integer("top_k", r.top_k);
  reader.number("top_p", r.top_p);
  reader.number("min_p", r.min_p);
  reader.number("repetition_penalty", r.repetition_penalty);
  reader.number("presence_penalty", r.presence_penalty);
  reader.number("frequency_penalty", r.frequency_penalty);
  reader.biases(r.logit_bias);
  reader.optional_integer("seed", r.seed);
  reader.integer("top_logprobs", r.top_logprobs);
  reader.integer("prompt_logprobs", r.prompt_logprobs);
  reader.texts("stop", r.stop);
  reader.ids("stop_ids", r.stop_ids);
  reader.boolean("ignore_eos", r.ignore_eos);
  reader.integer("priority", r.priority);
  reader.integer("deadline_ms", r.deadline_ms);
  reader.text("idempotency_key", r.idempotency_key);
  reader.integer("n", r.n);
  reader.text("group", r.group);
  reader.refuse_unknown();
  const int given = !r.messages.empty() + !r.text.empty() + !r.ids.empty();
  if (reader.wrong.empty() && given != 1) {
    return "expected one of messages, prompt, prompt_ids, got " + std::to_string(given);
  }
  return reader.wrong;
}

Json numbers(const std::vector<float>& values) {
  Json array = Json::array();
  for (const float v : values) array.push_back(static_cast<double>(v));
  return array;
}

Json integers(const std::vector<int32_t>& values) {
  Json array = Json::array();
  for (const int32_t v : values) array.push_back(static_cast<int64_t>(v));
  return array;
}

Json tops(const std::vector<std::vector<client::TopToken>>& values) {
  Json all = Json::array();
  for (const auto& entry : values) {
    Json top = Json::array();
    for (const client::TopToken& t : entry) {
      Json pair = Json::array();
      pair.push_back(static_cast<int64_t>(t.id));
      pair.push_back(static_cast<double>(t.logprob));
      top.push_back(std::move(pair));
    }
    all.push_back(std::move(top));
  }
  return all;
}

void set_choice(Json& json, const client::Choice& choice) {
  json.set("text", choice.text);
  json.set("finish", choice.finish);
  json.set("ids", integers(choice.ids));
  if (!choice.logprobs.empty()) json.set("logprobs", numbers(choice.logprobs));
  if (!choice.top.empty()) json.set("top_logprobs", tops(choice.top));
}

}  // namespace

Result<std::vector<BatchLine>> read_batch(std::string_view text, const client::Request& defaults) {
  std::vector<BatchLine> lines;
  std::set<std::string> ids;
  size_t number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = "line " + std::to_string(number) + ": ";
    const Result<Json> json = parse_json(line);
    if (!json.ok()) return Error{ErrorCode::invalid_argument, where + json.error().text};
    BatchLine entry;
    entry.id = std::to_string(number);
    entry.request = defaults;
    const std::string wrong = read_line(*json, entry);
    if (!wrong.empty()) return Error{ErrorCode::invalid_argument, where + wrong};
    if (!ids.insert(entry.id).second) {
      return Error{ErrorCode::conflict, where + "the id '" + entry.id.substr(0, 60) +
                                            "' appears a second time; ids must be unique"};
    }
    entry.request.id = entry.id;
    lines.push_back(std::move(entry));
  }
  return lines;
}

std::string result_line(const client::Request& request, const client::Result& r) {
  Json line = Json::object();
  line.set("id", request.id);
  if (!request.group.empty()) line.set("group", request.group);
  if (request.n == 1) {
    set_choice(line, r);
  } else {
    Json choices = Json::array();
    for (size_t c = 0; c < r.choices(); ++c) {
      Json choice = Json::object();
      set_choice(choice, r.choice(c));
      choices.push_back(std::move(choice));
    }
    line.set("choices", std::move(choices));
  }
  line.set("prompt_ids", integers(r.prompt_ids));
  if (!r.prompt_logprobs.empty()) {
    Json scores = Json::array();
    scores.push_back(nullptr);  // the first prompt token has none
    for (const float v : r.prompt_logprobs) scores.push_back(static_cast<double>(v));
    line.set("prompt_logprobs", std::move(scores));
  }
  if (!r.prompt_top.empty()) line.set("prompt_top_logprobs", tops(r.prompt_top));
  Json usage = Json::object();
  const client::Usage& u = r.usage;
  usage.set("prompt_tokens", static_cast<int64_t>(u.prompt_tokens));
  usage.set("cached_tokens", static_cast<int64_t>(u.cached_tokens));
  usage.set("completion_tokens", static_cast<int64_t>(u.completion_tokens));
  usage.set("kv_bytes", static_cast<int64_t>(u.kv_bytes));
  usage.set("ttft_us", u.ttft_us);
  usage.set("total_us", u.total_us);
  usage.set("prefill_rank", static_cast<int64_t>(u.prefill_rank));
  usage.set("decode_rank", static_cast<int64_t>(u.decode_rank));
  usage.set("attempts", static_cast<int64_t>(u.attempts));
  usage.set("weights_version", static_cast<int64_t>(u.weights_version));
  usage.set("exact", u.exact);
  line.set("usage", std::move(usage));
  return write_json(line);
}

std::string error_line(const client::Request& request, const client::Error& error) {
  Json line = Json::object();
  line.set("id", request.id);
  if (!request.group.empty()) line.set("group", request.group);
  Json detail = Json::object();
  detail.set("code", error.code);
  detail.set("message", error.text);
  line.set("error", std::move(detail));
  return write_json(line);
}

}  // namespace baton::cli
