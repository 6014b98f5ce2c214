#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "launch/cli/batch_file.h"
#include "launch/cli/client_options.h"
#include "launch/cli/terminal.h"

namespace baton::cli {
namespace {

// Keeps up to `concurrency` jobs under way and writes their lines in the order of the input: a
// result that is early waits for those in front of it.
class BatchRun {
 public:
  BatchRun(client::Client& server, std::vector<BatchLine> lines, size_t concurrency, std::FILE* out)
      : server_(server), lines_(std::move(lines)), concurrency_(concurrency), out_(out) {}

  // Returns the number of lines that ended in an error.
  size_t run() {
    ProgressBar bar("Batch");
    while (written_ < lines_.size()) {
      while (running_.size() < concurrency_ && next_ < lines_.size()) start(next_++);
      if (!collect()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      write_ready();
      bar.update(written_, lines_.size());
    }
    bar.finish();
    return errors_;
  }

 private:
  void start(size_t index) { running_.emplace(index, server_.submit(lines_[index].request)); }

  // Takes what has ended; a refusal that says "later" is tried again after that time.
  bool collect() {
    bool any = false;
    for (auto it = running_.begin(); it != running_.end();) {
      client::Stream& stream = it->second;
      while (stream.next(0)) {
      }
      if (!stream.finished()) {
        ++it;
        continue;
      }
      any = true;
      const size_t index = it->first;
      if (stream.failed() && stream.error().code == "busy") {
        std::this_thread::sleep_for(
            std::chrono::milliseconds(std::clamp<int64_t>(stream.error().retry_after_ms, 1, 1000)));
        it->second = server_.submit(lines_[index].request);
        continue;
      }
      ready_[index] = stream.failed() ? error_line(lines_[index].id, stream.error())
                                      : result_line(lines_[index].id, stream.result());
      errors_ += stream.failed();
      it = running_.erase(it);
    }
    return any;
  }

  void write_ready() {
    for (auto it = ready_.find(written_); it != ready_.end(); it = ready_.find(written_)) {
      std::fprintf(out_, "%s\n", it->second.c_str());
      ready_.erase(it);
      ++written_;
    }
  }

  client::Client& server_;
  std::vector<BatchLine> lines_;
  size_t concurrency_;
  std::FILE* out_;
  std::map<size_t, client::Stream> running_;
  std::map<size_t, std::string> ready_;
  size_t next_ = 0;
  size_t written_ = 0;
  size_t errors_ = 0;
};

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
  command.option("--concurrency", concurrency, "Requests under way at once");
  if (const auto status = command.parse(argc, argv)) return *status;

  std::ifstream file(input, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "baton batch: cannot read '%s'\n", input.c_str());
    return kUsage;
  }
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  client::Request defaults;
  generation.fill(defaults);
  auto lines = read_batch(text, defaults);
  if (!lines.ok()) {
    std::fprintf(stderr, "baton batch: %s: %s\n", input.c_str(), lines.error().text.c_str());
    return kUsage;
  }
  auto connected = client::Client::connect(where.of("baton-batch"));
  if (!connected.value) return report_error("batch", connected.error);
  std::FILE* out = output == "-" ? stdout : std::fopen(output.c_str(), "w");
  if (!out) {
    std::fprintf(stderr, "baton batch: cannot write '%s'\n", output.c_str());
    return kUsage;
  }
  const size_t count = lines->size();
  const auto start = std::chrono::steady_clock::now();
  const size_t errors = BatchRun(*connected.value, std::move(*lines),
                                 static_cast<size_t>(std::max<int64_t>(1, concurrency)), out)
                            .run();
  const bool written = std::fflush(out) == 0 && (out == stdout || std::fclose(out) == 0);
  const auto elapsed = std::chrono::steady_clock::now() - start;
  std::fprintf(stderr, "%zu requests, %zu errors, %s\n", count, errors,
               duration_text(std::chrono::duration_cast<std::chrono::microseconds>(elapsed).count())
                   .c_str());
  if (!written) {
    std::fprintf(stderr, "baton batch: writing '%s' failed: is the disk full?\n", output.c_str());
    return kInternal;
  }
  return errors == 0 ? kOk : kRetry;
}

}  // namespace baton::cli
