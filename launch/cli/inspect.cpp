#include "runtime/model/inspect.h"

#include <cstdio>
#include <string>

#include "launch/cli/client_options.h"
#include "launch/cli/terminal.h"

namespace baton::cli {
namespace {

int model_error(const char* verb, const Error& error) {
  std::fprintf(stderr, "baton %s: %s\n", verb, error.text.c_str());
  return error.code == ErrorCode::invalid_argument ? kUsage : kBadModel;
}

}  // namespace

int inspect_main(int argc, char** argv) {
  Command command("inspect", "Describe a GGUF model file, and say whether this build can serve it");
  std::string path;
  bool tensors = false;
  bool json = false;
  bool sum = false;
  command.positional("MODEL", path, "A GGUF file", true);
  command.flag("--tensors", tensors, "List every tensor");
  command.flag("--json", json, "One JSON object, for programs");
  command.flag("--sha256", sum, "Also compute the file's SHA-256");
  if (const auto status = command.parse(argc, argv)) return *status;

  install_model_fault_handler();
  const Result<ModelFile> file = ModelFile::open(path);
  if (!file.ok()) return model_error("inspect", file.error());
  if (json) {
    std::printf("%s\n", write_json(describe_model_json(*file)).c_str());
  } else {
    InspectOptions options;
    options.tensors = tensors;
    std::printf("%s", describe_model(*file, options).c_str());
  }
  if (sum) {
    const Result<std::string> digest = sha256_of_file(path);
    if (!digest.ok()) return model_error("inspect", digest.error());
    std::printf("SHA-256 %s\n", digest->c_str());
  }
  const Result<ModelConfig> config = read_model_config(*file);
  return config.ok() ? kOk : kBadModel;
}

int tokenize_main(int argc, char** argv) {
  Command command("tokenize", "Show the token ids of a text");
  std::string path;
  std::string text;
  bool special = false;
  bool ids_only = false;
  command.option("--model,-m", path, "A GGUF file");
  command.positional("TEXT", text, "The text; - for standard input", true);
  command.flag("--special", special, "Recognise the texts of special tokens");
  command.flag("--ids", ids_only, "Only the ids, on one line");
  if (const auto status = command.parse(argc, argv)) return *status;
  if (path.empty()) {
    std::fprintf(stderr, "baton tokenize: no model given; expected --model FILE.gguf\n");
    return kUsage;
  }

  install_model_fault_handler();
  const Result<ModelFile> file = ModelFile::open(path);
  if (!file.ok()) return model_error("tokenize", file.error());
  const Result<Tokenizer> tokenizer = Tokenizer::load(*file);
  if (!tokenizer.ok()) return model_error("tokenize", tokenizer.error());
  const Result<TokenizeReport> report =
      tokenize_report(*tokenizer, text == "-" ? read_stdin() : text, special);
  if (!report.ok()) return model_error("tokenize", report.error());
  if (!ids_only) {
    std::printf("%s", tokenize_table(*report).c_str());
    return kOk;
  }
  for (size_t i = 0; i < report->ids.size(); ++i) {
    std::printf("%s%d", i ? " " : "", report->ids[i]);
  }
  std::printf("\n");
  return kOk;
}

}  // namespace baton::cli
