#include "runtime/model/jinja_evaluator.h"

#include <doctest/doctest.h>

#include <string>

#include "runtime/model/chat_template.h"
#include "tests/unit/model/golden_files.h"

namespace baton {
namespace {

// Renders a case of jinja_goldens.json.
Result<std::string> render(const Json& data, const Json& test_case) {
  Result<ChatTemplate> compiled =
      ChatTemplate::compile(test_case.find("template")->as_string(), "<s>", "</s>");
  if (!compiled) return compiled.error();
  ChatInput input;
  input.now_unix_s = data.find("now")->as_integer();
  for (const Json::Member& member :
       data.find("inputs")->find(test_case.find("input")->as_string())->as_object()) {
    if (member.name == "messages") {
      input.messages = member.value;
    } else if (member.name == "tools") {
      input.tools = member.value;
    } else if (member.name == "add_generation_prompt") {
      input.add_generation_prompt = member.value.as_bool();
    } else {
      input.variables.set(member.name, member.value);
    }
  }
  const Result<std::vector<PromptSegment>> segments = compiled->render(input);
  if (!segments) return segments.error();
  return segments_text(*segments);
}

}  // namespace

TEST_CASE("templates render as Jinja2 renders them") {
  const Json data = test::read_golden("tests/unit/model/data/jinja_goldens.json");
  int rendered = 0, refused = 0;
  for (const Json& test_case : data.find("cases")->as_array()) {
    const std::string& name = test_case.find("name")->as_string();
    const std::string& source = test_case.find("template")->as_string();
    CAPTURE(name);
    CAPTURE(source);
    const Result<std::string> text = render(data, test_case);
    if (const Json* expected = test_case.find("text")) {
      CHECK_MESSAGE(text.ok(), (text.ok() ? "" : text.error().text));
      if (text.ok()) CHECK(*text == expected->as_string());
      ++rendered;
    } else {
      CHECK_FALSE(text.ok());
      if (!text.ok()) CHECK(text.error().text.starts_with("chat template, line "));
      ++refused;
    }
  }
  CHECK(rendered > 400);
  CHECK(refused > 40);
}

}  // namespace baton
