// Any bytes as a model file: it is read whole, or refused with one sentence.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "runtime/base/check.h"
#include "runtime/base/utf8.h"
#include "runtime/model/chat_template.h"
#include "runtime/model/inspect.h"
#include "runtime/model/model_config.h"
#include "runtime/model/model_file.h"
#include "runtime/model/tokenizer.h"

namespace baton {
namespace {

void check_sentence(const Error& error) {
  CHECK(error.text.starts_with("fuzz.gguf: "));
  CHECK(error.text.find('\n') == std::string::npos);
  CHECK(error.text.size() < 2000);
  CHECK(is_utf8(error.text));
}

void read(const std::uint8_t* data, std::size_t size) {
  std::vector<std::byte> bytes(size);
  if (size != 0) std::memcpy(bytes.data(), data, size);
  const Result<ModelFile> file = ModelFile::from_bytes(std::move(bytes), "fuzz.gguf");
  if (!file) return check_sentence(file.error());
  for (const TensorInfo& tensor : file->tensors()) {
    CHECK(tensor.offset + tensor.data.size() <= size);
    CHECK(tensor.offset % file->alignment() == 0);
  }
  if (const Result<ModelConfig> config = read_model_config(*file); !config) {
    check_sentence(config.error());
  } else {
    CHECK(config->heads * config->head_dim == config->hidden);
    CHECK(config->heads % config->kv_heads == 0);
  }
  CHECK(file->fingerprint().size() == 32);
  CHECK(is_utf8(describe_model(*file, {true, true})));
  if (const Result<Tokenizer> tokenizer = Tokenizer::load(*file); !tokenizer) {
    check_sentence(tokenizer.error());
  } else {
    const Result<std::vector<TokenId>> ids =
        tokenizer->encode("Hello <|im_end|> 123 \xC3\xA9", true);
    CHECK(ids.ok());
    for (const TokenId id : *ids) CHECK(tokenizer->contains(id));
    CHECK(is_utf8(tokenizer->decode(*ids, false)));
    if (const Result<ChatTemplate> chat = ChatTemplate::load(*file, *tokenizer); chat) {
      ChatInput input;
      input.messages = chat_messages({{"user", "Hi"}});
      if (const auto segments = chat->render(input)) CHECK(is_utf8(segments_text(*segments)));
    }
  }
}

}  // namespace
}  // namespace baton

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  baton::read(data, size);
  return 0;
}
