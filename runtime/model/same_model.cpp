#include "runtime/model/same_model.h"

#include <fmt/format.h>

#include <map>
#include <string>

#include "runtime/base/hash.h"

namespace baton {

std::uint64_t tokenizer_digest(const ModelFile& file) {
  constexpr std::string_view kPrefix = "tokenizer.";
  std::map<std::string_view, const MetaValue*> sorted;  // the order in a file means nothing
  for (const MetaValue& value : file.metadata()) {
    if (!value.key.starts_with(kPrefix) || value.key == "tokenizer.chat_template") continue;
    sorted[value.key] = &value;
  }
  std::uint64_t digest = 0;
  for (const auto& [key, value] : sorted) {
    digest = mix64(digest ^ hash64(key.data(), key.size()));
    digest = mix64(digest ^ static_cast<std::uint64_t>(value->type));
    digest = mix64(digest ^ hash64(value->bytes.data(), value->bytes.size()));
  }
  return digest;
}

Result<void> check_same_model(const ModelIdentity& served_model, const ModelIdentity& offered_model,
                              const std::string& path) {
  const ModelConfig& served = served_model.config;
  const ModelConfig& offered = offered_model.config;
  const auto differs = [&](const char* what, const auto& theirs, const auto& ours) {
    return Error{ErrorCode::conflict,
                 fmt::format("{}: its {} is {}, that of the model that is served {}; weights can "
                             "only be replaced by those of the same shape",
                             path, what, theirs, ours)};
  };
  if (offered.architecture != served.architecture) {
    return differs("architecture", offered.architecture, served.architecture);
  }
  struct Size {
    const char* what;
    std::uint32_t ModelConfig::*member;
  };
  for (const Size& size :
       {Size{"number of layers", &ModelConfig::layers}, Size{"hidden width", &ModelConfig::hidden},
        Size{"feed-forward width", &ModelConfig::ffn}, Size{"number of heads", &ModelConfig::heads},
        Size{"number of kv-heads", &ModelConfig::kv_heads},
        Size{"head size", &ModelConfig::head_dim}, Size{"vocabulary", &ModelConfig::vocab},
        Size{"context", &ModelConfig::context}}) {
    if (offered.*size.member != served.*size.member) {
      return differs(size.what, offered.*size.member, served.*size.member);
    }
  }
  if (offered.rope_base != served.rope_base) {
    return differs("RoPE base", offered.rope_base, served.rope_base);
  }
  if (offered.norm_eps != served.norm_eps) {
    return differs("epsilon of the norms", offered.norm_eps, served.norm_eps);
  }
  if (offered.tied != served.tied) {
    return differs("output matrix", offered.tied ? "tied to the embedding" : "one of its own",
                   served.tied ? "tied to the embedding" : "one of its own");
  }
  if (offered_model.tokenizer != served_model.tokenizer) {
    return Error{ErrorCode::conflict,
                 path +
                     ": its tokenizer is not that of the model that is served; weights can only "
                     "be replaced by those of the same vocabulary"};
  }
  return {};
}

}  // namespace baton
