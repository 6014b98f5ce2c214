// Any text as a chat template: it is refused or rendered, within the limits, and what came from the
// request stays marked as content.

#include <cstddef>
#include <cstdint>

#include "runtime/base/check.h"
#include "runtime/base/utf8.h"
#include "runtime/model/chat_template.h"

namespace baton {
namespace {

constexpr std::string_view kSnowman = "\xE2\x98\x83";  // stands for all that a client may send

ChatInput input() {
  const std::string s(kSnowman);
  ChatInput out;
  out.messages = parse_json("[{\"role\":\"system\",\"content\":\" " + s + "a b\\n" + s +
                            "\"},{\"role\":\"user\",\"content\":\"" + s +
                            "\",\"n\":3,\"x\":2.5,\"l\":[1,\"" + s + "\",null]}]")
                     .value();
  out.tools = parse_json("[{\"function\":{\"name\":\"" + s + "\",\"" + s + "\":true}}]").value();
  return out;
}

void render(std::string_view source) {
  const Result<ChatTemplate> compiled = ChatTemplate::compile(std::string(source), "<s>", "</s>");
  if (!compiled) {
    CHECK(compiled.error().code == ErrorCode::bad_model);
    CHECK(is_utf8(compiled.error().text));
    return;
  }
  static const ChatInput conversation = input();
  const Result<std::vector<PromptSegment>> segments = compiled->render(conversation);
  if (!segments) {
    CHECK(is_utf8(segments.error().text));
    CHECK(segments.error().text.size() < 1000);
    return;
  }
  const bool may_say_it = source.find(kSnowman) != std::string_view::npos ||
                          source.find('\\') != std::string_view::npos;
  bool content_before = false, first = true;
  for (const PromptSegment& segment : *segments) {
    CHECK(!segment.text.empty());
    CHECK(is_utf8(segment.text));
    CHECK(first || segment.is_content != content_before);
    CHECK(segment.is_content || may_say_it || segment.text.find(kSnowman) == std::string::npos);
    content_before = segment.is_content;
    first = false;
  }
}

}  // namespace
}  // namespace baton

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  baton::render({reinterpret_cast<const char*>(data), size});
  return 0;
}
