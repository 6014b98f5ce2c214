#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launch/cli/batch_file.h"
#include "launch/cli/client_options.h"
#include "launch/cli/terminal.h"

namespace baton::cli {
namespace {

// What became of the requests of one group.
struct GroupCount {
  size_t requests = 0;
  size_t errors = 0;
  size_t choices = 0;
  uint64_t prompt_tokens = 0;
  uint64_t tokens = 0;
  std::map<std::string, size_t> finishes;

  void add(const client::Finished& finished) {
    ++requests;
    errors += finished.failed;
    if (finished.failed) return;
    choices += finished.result.choices();
    prompt_tokens += finished.result.usage.prompt_tokens;
    for (size_t c = 0; c < finished.result.choices(); ++c) {
      tokens += finished.result.choice(c).ids.size();
      ++finishes[finished.result.choice(c).finish];
    }
  }
};

std::string summary_of(const std::string& name, const GroupCount& count) {
  std::string text = "group " + name + ": " + std::to_string(count.requests) + " requests, " +
                     std::to_string(count.errors) + " errors, " + std::to_string(count.choices) +
                     " choices, " + count_text(count.prompt_tokens) + " prompt tokens, " +
                     count_text(count.tokens) + " tokens";
  for (const auto& [finish, times] : count.finishes) {
    text += ", " + std::to_string(times) + " " + finish;
  }
  return text;
}

struct BatchEnd {
  size_t requests = 0;
  size_t errors = 0;
  std::map<std::string, GroupCount> groups;  // by name; those without one under ""
};

// Writes a line for each request, in the order of the input.
BatchEnd run_group(client::Group& group, const std::vector<BatchLine>& lines, std::FILE* out) {
  BatchEnd end;
  ProgressBar bar("Batch");
  while (const auto finished = group.next()) {
    const client::Request& request = lines[finished->index].request;
    const std::string line = finished->failed ? error_line(request, finished->error)
                                              : result_line(request, finished->result);
    std::fprintf(out, "%s\n", line.c_str());
    end.groups[request.group].add(*finished);
    end.errors += finished->failed;
    bar.update(++end.requests, lines.size());
  }
  bar.finish();
  return end;
}

void print_summary(const BatchEnd& end, std::chrono::steady_clock::duration elapsed) {
  for (const auto& [name, count] : end.groups) {
    if (!name.empty()) std::fprintf(stderr, "%s\n", summary_of(name, count).c_str());
  }
  std::fprintf(stderr, "%zu requests, %zu errors, %s\n", end.requests, end.errors,
               duration_text(std::chrono::duration_cast<std::chrono::microseconds>(elapsed).count())
                   .c_str());
}

// Empty, and why on stderr, if the file cannot be used.
std::optional<std::vector<BatchLine>> read_input(const std::string& input,
                                                 const GenerationOptions& generation) {
  std::ifstream file(input, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "baton batch: cannot read '%s'\n", input.c_str());
    return std::nullopt;
  }
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  client::Request defaults;
  generation.fill(defaults);
  auto lines = read_batch(text, defaults);
  if (lines.ok()) return std::move(*lines);
  std::fprintf(stderr, "baton batch: %s: %s\n", input.c_str(), lines.error().text.c_str());
  return std::nullopt;
}

}  // namespace

int batch_main(int argc, char** argv) {
  Command command("batch",
                  "Run the requests of a JSON-lines file; results come in the order of the input");
  ClientOptions where;
  GenerationOptions generation;
  std::string input;
  std::string output;
  int64_t concurrency = 64;
  command.positional("IN", input, "A request a line; see docs/batch.md", true);
  command.positional("OUT", output, "A result a line; - for standard output", true);
  where.enroll(command);
  generation.enroll(command);
  generation.enroll_choices(command);
  command.option("--concurrency", concurrency, "Requests under way at once");
  if (const auto status = command.parse(argc, argv)) return *status;

  const auto lines = read_input(input, generation);
  if (!lines) return kUsage;
  auto connected = client::Client::connect(where.of("baton-batch"));
  if (!connected.value) return report_error("batch", connected.error);
  std::FILE* out = output == "-" ? stdout : std::fopen(output.c_str(), "w");
  if (!out) {
    std::fprintf(stderr, "baton batch: cannot write '%s'\n", output.c_str());
    return kUsage;
  }
  const auto start = std::chrono::steady_clock::now();
  std::vector<client::Request> requests;
  for (const BatchLine& line : *lines) requests.push_back(line.request);
  auto group = connected.value->submit_all(
      std::move(requests), {static_cast<size_t>(std::max<int64_t>(1, concurrency)), true});
  if (!group.value) return report_error("batch", group.error);
  const BatchEnd end = run_group(*group.value, *lines, out);
  const bool written = std::fflush(out) == 0 && (out == stdout || std::fclose(out) == 0);
  print_summary(end, std::chrono::steady_clock::now() - start);
  if (!written) {
    std::fprintf(stderr, "baton batch: writing '%s' failed: is the disk full?\n", output.c_str());
    return kInternal;
  }
  return end.errors == 0 ? kOk : kRetry;
}

}  // namespace baton::cli
