#include "runtime/base/json.h"

#include <doctest/doctest.h>

#include <limits>

#include "runtime/base/utf8.h"

namespace baton {
namespace {

std::string times(std::string_view unit, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += unit;
  return out;
}

}  // namespace

TEST_CASE("JSON that is not strictly JSON is refused with its offset") {
  const struct {
    std::string_view text;
    std::string_view says;
  } kBad[] = {
      {"", "at byte"},
      {" ", "at byte"},
      {"{", "at byte"},
      {"[1,]", "at byte 4"},
      {"{\"a\":1,}", "at byte"},
      {"[1] x", "at byte 5"},
      {"[1][2]", "at byte"},
      {"\xEF\xBB\xBF{}", "at byte 0: a byte order mark"},
      {"NaN", "at byte"},
      {"[Infinity]", "at byte"},
      {"1e999", "at byte"},
      {"-1e999", "at byte"},
      {"01", "at byte"},
      {"+1", "at byte"},
      {".5", "at byte"},
      {"'a'", "at byte"},
      {"// c\n1", "at byte"},
      {"\"a\nb\"", "at byte"},
      {"\"\xFF\"", "at byte 1: not UTF-8"},
      {"[\"\xED\xA0\x80\"]", "at byte 2: not UTF-8"},
      {"\"\\ud800\"", "at byte"},
      {"\"\\udc00\"", "at byte"},
      {"\"\\ud800\\u0041\"", "at byte"},
      {"\"\\x41\"", "at byte"},
      {"{\"n\":1,\"n\":2}", "at byte 10: the member \"n\" a second time"},
      {"{\"a\":{\"n\":1,\"\\u006e\":2}}", "the member \"n\" a second time"},
      {"{a:1}", "at byte"},
      {"tru", "at byte"},
  };
  for (const auto& [text, says] : kBad) {
    CAPTURE(text);
    const Result<Json> json = parse_json(text);
    REQUIRE_FALSE(json.ok());
    CAPTURE(json.error().text);
    CHECK(json.error().code == ErrorCode::invalid_argument);
    CHECK(json.error().text.starts_with("invalid JSON "));
    CHECK(json.error().text.find(says) != std::string::npos);
    CHECK(is_utf8(json.error().text));
  }
}

TEST_CASE("depth, size and number of values are limited while reading") {
  CHECK(parse_json(times("[", 64) + times("]", 64)).ok());
  const Result<Json> deep = parse_json(times("[", 65) + times("]", 65));
  REQUIRE_FALSE(deep.ok());
  CHECK(deep.error().text == "invalid JSON at byte 65: nesting deeper than 64 levels");
  CHECK_FALSE(parse_json(times("[", 1'000'000)).ok());
  CHECK_FALSE(parse_json(times("{\"a\":", 1'000'000)).ok());
  CHECK(parse_json("[1,2,3]", {.values_max = 4}).ok());
  CHECK_FALSE(parse_json("[1,2,3]", {.values_max = 3}).ok());
  CHECK(parse_json("[1]", {.bytes_max = 3}).ok());
  CHECK_FALSE(parse_json("[1] ", {.bytes_max = 3}).ok());
  std::string wide = "{";
  for (int i = 0; i < 100'000; ++i) wide += "\"k" + std::to_string(i) + "\":1,";
  CHECK(parse_json(wide + "\"x\":1}").ok());
  CHECK_FALSE(parse_json(wide + "\"k7\":1}").ok());
}

TEST_CASE("values keep their kind and order, and writing gives them back") {
  const std::string text =
      R"({"z":[1,-2,1.5,1e+30,true,null,"q\"\\\n\u0001é😀"],"a":{},"b":[],"big":9223372036854775807})";
  const Json json = parse_json(text).value();
  CHECK(json.as_object()[0].name == "z");
  const Json::Array& list = json.find("z")->as_array();
  CHECK(list[0].as_integer() == 1);
  CHECK(list[2].as_number() == 1.5);
  CHECK(list[3].is_real());
  CHECK(list[5].is_null());
  CHECK(list[6].as_string() == "q\"\\\n\x01é😀");
  CHECK(json.find("none") == nullptr);
  CHECK(list[0].find("z") == nullptr);
  CHECK(write_json(json) == text);
  CHECK(parse_json(write_json(json)).value() == json);
  CHECK(parse_json("1.0").value().is_real());
  CHECK(write_json(parse_json("1.0").value()) == "1.0");
  CHECK(parse_json("18446744073709551616").value().is_real());
  CHECK(parse_json("9223372036854775808").value().is_real());
  CHECK(parse_json("-9223372036854775808").value().as_integer() ==
        std::numeric_limits<std::int64_t>::min());
  CHECK(parse_json("\"\\ud83d\\ude00\"").value().as_string() == "😀");
  CHECK(parse_json(" \t\r\n[ ] ").ok());
}

TEST_CASE("building, comparing and writing odd values") {
  Json json = Json::object();
  json.set("a", 1);
  json.set("b", "x");
  json.set("a", 2.5);
  json.set("nan", std::numeric_limits<double>::quiet_NaN());
  json.set("bytes", "a\xFF\xC3(");
  CHECK(write_json(json) == "{\"a\":2.5,\"b\":\"x\",\"nan\":null,\"bytes\":\"a\uFFFD\uFFFD(\"}");
  CHECK(std::string(json.type_name()) == "object");
  CHECK(Json(1) == Json(1.0));
  CHECK_FALSE(Json(1) == Json("1"));
  CHECK(parse_json(R"({"a":1,"b":[null,true]})").value() ==
        parse_json(R"({"b":[null,true],"a":1.0})").value());
  CHECK_FALSE(parse_json("[1,2]").value() == parse_json("[2,1]").value());
}

TEST_CASE("UTF-8 is told from what only looks like it") {
  CHECK(is_utf8(""));
  CHECK(is_utf8("abcdefgh é 日 😀 \xF4\x8F\xBF\xBF"));
  for (const std::string_view bad :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF0\x80\x80\x80",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE2\x82", "\xF0\x9F\x98", "\xFF"}) {
    CHECK_FALSE(is_utf8(bad));
    CHECK(valid_utf8_prefix("abcdefghi" + std::string(bad)) == 9);
  }
  std::string all;
  std::size_t count = 0;
  for (char32_t c = 0; c <= 0x10FFFF; c += c < 0x3000 ? 1 : 251) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    append_utf8(all, c);
    ++count;
  }
  REQUIRE(is_utf8(all));
  char32_t before = 0;
  for (std::size_t at = 0; at < all.size(); --count) {
    const char32_t c = next_code_point(all, at);
    CHECK((c > before || before == 0));
    before = c;
  }
  CHECK(count == 0);
}

}  // namespace baton
