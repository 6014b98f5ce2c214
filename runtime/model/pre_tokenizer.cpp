#include "runtime/model/pre_tokenizer.h"

#include <fmt/format.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/model/gguf_parser.h"

namespace baton {
namespace {

// White space as Unicode has it (PCRE2's \s also takes U+180E). The letters and numbers listed
// after the properties came with Unicode 15 to 17; an older PCRE2 does not know them.
constexpr char kSpace[] = R"(\t-\r \x{85}\p{Z})";
constexpr char kLetter[] =
    R"(\p{L}\x{88F}\x{C5C}\x{CDC}\x{1C89}-\x{1C8A}\x{A7CB}-\x{A7CF}\x{A7D2}\x{A7D4}\x{A7DA}-\x{A7DC})"
    R"(\x{A7F1}\x{105C0}-\x{105F3}\x{10940}-\x{10959}\x{10D4A}-\x{10D65}\x{10D6F}-\x{10D85})"
    R"(\x{10EC2}-\x{10EC7}\x{1123F}-\x{11240}\x{11380}-\x{11389}\x{1138B}\x{1138E}\x{11390}-\x{113B5})"
    R"(\x{113B7}\x{113D1}\x{113D3}\x{11BC0}-\x{11BE0}\x{11DB0}-\x{11DDB}\x{11F02}\x{11F04}-\x{11F10})"
    R"(\x{11F12}-\x{11F33}\x{1342F}\x{13441}-\x{13446}\x{13460}-\x{143FA}\x{16100}-\x{1611D})"
    R"(\x{16D40}-\x{16D6C}\x{16EA0}-\x{16EB8}\x{16EBB}-\x{16ED3}\x{16FF2}-\x{16FF3}\x{187F8}-\x{187FF})"
    R"(\x{18CFF}\x{18D09}-\x{18D1E}\x{18D80}-\x{18DF2}\x{1B132}\x{1B155}\x{1DF25}-\x{1DF2A})"
    R"(\x{1E030}-\x{1E06D}\x{1E4D0}-\x{1E4EB}\x{1E5D0}-\x{1E5ED}\x{1E5F0}\x{1E6C0}-\x{1E6DE})"
    R"(\x{1E6E0}-\x{1E6E2}\x{1E6E4}-\x{1E6E5}\x{1E6E7}-\x{1E6ED}\x{1E6F0}-\x{1E6F4}\x{1E6FE}-\x{1E6FF})"
    R"(\x{2B739}-\x{2B73F}\x{2CEA2}-\x{2CEAD}\x{2EBF0}-\x{2EE5D}\x{31350}-\x{33479})";
constexpr char kNumber[] =
    R"(\p{N}\x{10D40}-\x{10D49}\x{116D0}-\x{116E3}\x{11BF0}-\x{11BF9}\x{11DE0}-\x{11DE9})"
    R"(\x{11F50}-\x{11F59}\x{16130}-\x{16139}\x{16D70}-\x{16D79}\x{16FF4}-\x{16FF6}\x{1CCF0}-\x{1CCF9})"
    R"(\x{1D2C0}-\x{1D2D3}\x{1E4F0}-\x{1E4F9}\x{1E5F1}-\x{1E5FA})";

struct Kind {
  const char* name;
  const char* expression;  // S, L and N in angle brackets stand for the classes above
  bool whole_words_first;
  bool adds_bos;
};

constexpr char kGpt2[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?[<L>]+| ?[<N>]+| ?[^<S><L><N>]+|[<S>]+(?![^<S>])|[<S>]+)";
// Numbers are isolated first and the stretches in between then see their end as the end of the
// text: white space in front of a number is one piece.
constexpr char kSmollm[] =
    R"([<N>]|'s|'t|'re|'ve|'m|'ll|'d| ?[<L>]+| ?[^<S><L><N>]+|[<S>]+(?![^<S><N>])|[<S>]+)";
// U+017F is the long s, which is an s without its case.
constexpr char kQwen2[] =
    R"('[sS\x{17F}]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n<L><N>]?[<L>]+|[<N>])"
    R"(| ?[^<S><L><N>]+[\r\n]*|[<S>]*[\r\n]+|[<S>]+(?![^<S>])|[<S>]+)";
constexpr char kLlama3[] =
    R"('[sS\x{17F}]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n<L><N>]?[<L>]+|[<N>]{1,3})"
    R"(| ?[^<S><L><N>]+[\r\n]*|[<S>]*[\r\n]+|[<S>]+(?![^<S>])|[<S>]+)";

constexpr Kind kKinds[] = {
    {"smollm", kSmollm, false, false},
    {"gpt-2", kGpt2, false, false},
    {"llama-bpe", kLlama3, true, true},
    {"qwen2", kQwen2, false, false},
};

std::string with_classes(std::string_view expression) {
  std::string out;
  for (std::size_t i = 0; i < expression.size(); ++i) {
    const std::string_view rest = expression.substr(i, 3);
    const char* characters = rest == "<S>"   ? kSpace
                             : rest == "<L>" ? kLetter
                             : rest == "<N>" ? kNumber
                                             : nullptr;
    if (characters == nullptr) {
      out += expression[i];
      continue;
    }
    out += characters;
    i += 2;
  }
  return out;
}

constexpr std::size_t kJitStackStart = 32u << 10;
constexpr std::size_t kJitStackMax = 1u << 20;
constexpr std::uint32_t kMatchLimit =
    50'000'000;  // steps of one match; a piece takes a few per byte
constexpr std::uint32_t kHeapLimitKib = 64u << 10;

// What one call of `split` needs beside the shared code.
struct Scratch {
  explicit Scratch(const pcre2_code* code)
      : data(pcre2_match_data_create_from_pattern(code, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(kJitStackStart, kJitStackMax, nullptr)) {
    CHECK(data != nullptr);
    CHECK(context != nullptr);
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_set_heap_limit(context, kHeapLimitKib);
    if (stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    if (stack != nullptr) pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }

  pcre2_match_data* data;
  pcre2_match_context* context;
  pcre2_jit_stack* stack;  // null where PCRE2 has no JIT
};

std::string pcre2_message(int error) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(error, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

struct PreTokenizer::Code {
  explicit Code(pcre2_code* compiled) : code(compiled) {}
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() { pcre2_code_free(code); }

  pcre2_code* code;
};

PreTokenizer::PreTokenizer(std::unique_ptr<const Code> code, bool whole_words_first, bool adds_bos)
    : code_(std::move(code)), whole_words_first_(whole_words_first), adds_bos_(adds_bos) {}
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

Result<PreTokenizer> PreTokenizer::named(std::string_view name) {
  const auto* kind = std::find_if(std::begin(kKinds), std::end(kKinds),
                                  [&](const Kind& known) { return name == known.name; });
  if (kind == std::end(kKinds)) {
    return Error{ErrorCode::unsupported,
                 fmt::format("pre-tokenizer {} is not supported; supported are smollm, gpt-2, "
                             "llama-bpe and qwen2",
                             quoted(name))};
  }
  const std::string expression = with_classes(kind->expression);
  int error = 0;
  PCRE2_SIZE at = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                    PCRE2_UTF | PCRE2_NO_UTF_CHECK, &error, &at, nullptr);
  CHECK_MSG(code != nullptr, "an expression of ours does not compile");
  // Without JIT support the interpreter does the work: slower, the same pieces.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return PreTokenizer(std::make_unique<const Code>(code), kind->whole_words_first, kind->adds_bos);
}

Result<void> PreTokenizer::split(std::string_view text,
                                 const std::function<void(std::string_view)>& piece) const {
  const Scratch scratch(code_->code);
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(scratch.data);
  std::size_t at = 0;
  while (at < text.size()) {
    const int rc = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                               at, PCRE2_NO_UTF_CHECK, scratch.data, scratch.context);
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0) {
      return Error{
          ErrorCode::invalid_argument,
          fmt::format("the text cannot be split into words at byte {}: {}", at, pcre2_message(rc))};
    }
    CHECK(found[1] > at);
    if (found[0] > at) piece(text.substr(at, found[0] - at));
    piece(text.substr(found[0], found[1] - found[0]));
    at = found[1];
  }
  if (at < text.size()) piece(text.substr(at));
  return {};
}

}  // namespace baton
