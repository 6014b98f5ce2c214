#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "launch/cli/client_options.h"
#include "launch/cli/stream_view.h"
#include "launch/cli/terminal.h"

namespace baton::cli {
namespace {

// "@file" reads the prompt from a file, "-" from standard input.
bool read_prompt(const std::string& word, std::string& text) {
  if (word == "-") {
    text = read_stdin();
    return true;
  }
  if (word.empty() || word[0] != '@') {
    text = word;
    return true;
  }
  std::ifstream file(word.substr(1), std::ios::binary);
  if (!file) return false;
  text.assign(std::istreambuf_iterator<char>(file), {});
  return true;
}

std::string short_label(const std::string& prompt) {
  std::string label = prompt.substr(0, 28);
  while (!label.empty() && (static_cast<unsigned char>(label.back()) & 0x80)) label.pop_back();
  for (char& c : label) {
    if (c == '\n') c = ' ';
  }
  return label.size() < prompt.size() ? label + "..." : label;
}

}  // namespace

int submit_main(int argc, char** argv) {
  Command command("submit",
                  "Send prompts to a server, all at once, and show the answers as they come");
  ClientOptions where;
  GenerationOptions generation;
  std::vector<std::string> prompts;
  std::string system;
  bool raw = false;
  bool table = false;
  command.positional("PROMPT", prompts, "A prompt; @FILE reads it from a file, - from stdin");
  where.enroll(command);
  generation.enroll(command);
  generation.enroll_choices(command);
  command.option("--system", system, "A system message in front of each prompt");
  command.flag("--raw", raw, "Continue the text as it is, without the model's chat template");
  command.flag("--table", table, "Print what each answer cost at the end");
  if (const auto status = command.parse(argc, argv)) return *status;
  if (prompts.empty()) {
    std::fprintf(stderr,
                 "baton submit: no prompt given; expected: baton submit \"What is ...?\"\n");
    return kUsage;
  }

  if (generation.choices < 1) {
    std::fprintf(stderr, "baton submit: -n is %lld; expected 1 or more\n",
                 static_cast<long long>(generation.choices));
    return kUsage;
  }

  auto connected = client::Client::connect(where.of("baton-submit"));
  if (!connected.value) return report_error("submit", connected.error);
  std::vector<client::Stream> streams;
  std::vector<std::string> labels;
  for (const std::string& word : prompts) {
    std::string prompt;
    if (!read_prompt(word, prompt)) {
      std::fprintf(stderr, "baton submit: cannot read '%s'\n", word.c_str() + 1);
      return kUsage;
    }
    client::Request request;
    generation.fill(request);
    if (raw) {
      request.text = prompt;
    } else {
      if (!system.empty()) request.messages.push_back({"system", system});
      request.messages.push_back({"user", prompt});
    }
    labels.push_back(short_label(prompt));
    if (prompts.size() > 1) {
      std::printf("[%zu] %s\n", labels.size(), coloured(prompt, 2, may_colour(stdout)).c_str());
    }
    streams.push_back(connected.value->submit(request));
  }

  const std::vector<Answer> answers =
      follow(streams, labels, static_cast<size_t>(generation.choices));
  if (table) std::printf("\n%s", summary_table(answers, may_colour(stdout)).c_str());
  int status = kOk;
  for (const Answer& answer : answers) {
    if (answer.failed) status = report_error("submit", answer.error);
  }
  return status;
}

}  // namespace baton::cli
