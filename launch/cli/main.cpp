#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "launch/cli/client_options.h"
#include "launch/version.h"

namespace {

struct Verb {
  const char* name;
  const char* summary;
  int (*main)(int, char**);
};

constexpr Verb kVerbs[] = {
    {"serve", "Start a server: all roles in this process, or one rank of an mpirun job",
     baton::cli::serve_main},
    {"submit", "Send prompts and stream the answers", baton::cli::submit_main},
    {"chat", "Talk with the model", baton::cli::chat_main},
    {"batch", "Run a file of requests", baton::cli::batch_main},
    {"status", "Show ranks, slots, blocks and queue", baton::cli::status_main},
    {"update-weights", "Replace the weights of a running server", baton::cli::update_weights_main},
    {"inspect", "Describe a model file", baton::cli::inspect_main},
    {"plan", "Show how KV moves from one layout to another", baton::cli::plan_main},
    {"tokenize", "Show the tokens of a text", baton::cli::tokenize_main},
    {"sim", "Run the actors on a simulated, faulty cluster", baton::cli::simulate_main},
};

void print_help(std::FILE* out) {
  std::fprintf(out, "Baton %s: distributed serving of large language models\n\n", kBatonVersion);
  std::fprintf(out, "Usage: baton VERB [OPTIONS]\n\n");
  for (const Verb& verb : kVerbs) std::fprintf(out, "  %-14s %s\n", verb.name, verb.summary);
  std::fprintf(out, "\n'baton VERB --help' lists a verb's options.\n");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string word = argc > 1 ? argv[1] : "--help";
  if (word == "--help" || word == "-h" || word == "help") {
    print_help(stdout);
    return baton::cli::kOk;
  }
  if (word == "--version" || word == "version") {
    std::printf("baton %s\n", kBatonVersion);
    return baton::cli::kOk;
  }
  std::vector<std::string> names;
  for (const Verb& verb : kVerbs) {
    names.emplace_back(verb.name);
    if (word != verb.name) continue;
    try {
      return verb.main(argc, argv);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "baton %s: %s\n", verb.name, error.what());
      return baton::cli::kInternal;
    }
  }
  const std::string near = baton::cli::nearest(word, names);
  std::fprintf(
      stderr, "baton: unknown verb '%s'%s\n", word.c_str(),
      near.empty() ? "; 'baton --help' lists them" : ("; did you mean " + near + "?").c_str());
  return baton::cli::kUsage;
}
