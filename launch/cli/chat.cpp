#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "launch/cli/client_options.h"
#include "launch/cli/terminal.h"

namespace baton::cli {
namespace {

std::atomic<bool> interrupted{false};
void on_interrupt(int) {
  interrupted = true;
}

// Shows one answer; returns an exit status. Ctrl-C cancels it; what came before stays part of the
// conversation.
int answer(client::Client& server, const GenerationOptions& generation,
           std::vector<client::Message>& messages) {
  client::Request request;
  generation.fill(request);
  request.messages = messages;
  interrupted = false;
  client::Stream stream = server.submit(request);
  std::string text;
  bool cancelled = false;
  while (!stream.finished()) {
    if (const auto part = stream.next(50)) {
      std::fwrite(part->text.data(), 1, part->text.size(), stdout);
      std::fflush(stdout);
      text += part->text;
    }
    if (interrupted && !cancelled) {
      cancelled = true;
      stream.cancel();
    }
  }
  std::printf("\n");
  if (stream.failed() && stream.error().code == "cancelled") {
    std::printf("%s\n", coloured("(stopped)", 2, may_colour(stdout)).c_str());
  } else if (stream.failed()) {
    messages.pop_back();
    return report_error("chat", stream.error());
  }
  messages.push_back({"assistant", text});
  return kOk;
}

}  // namespace

int chat_main(int argc, char** argv) {
  Command command("chat", "Talk with the model. Ctrl-C stops an answer, Ctrl-D ends the program");
  ClientOptions where;
  GenerationOptions generation;
  std::string system;
  where.enroll(command);
  generation.enroll(command);
  command.option("--system", system, "A system message in front of the conversation");
  if (const auto status = command.parse(argc, argv)) return *status;

  auto connected = client::Client::connect(where.of("baton-chat"));
  if (!connected.value) return report_error("chat", connected.error);
  struct sigaction action {};
  action.sa_handler = on_interrupt;  // no SA_RESTART: a read at the prompt ends too
  sigaction(SIGINT, &action, nullptr);

  const bool terminal = is_terminal(stdin);
  if (terminal) {
    std::printf("%s. /new starts over, /quit or Ctrl-D ends; Ctrl-C stops an answer.\n",
                connected.value->model().name.c_str());
  }
  std::vector<client::Message> messages;
  const auto start_over = [&] {
    messages.clear();
    if (!system.empty()) messages.push_back({"system", system});
  };
  start_over();
  while (true) {
    if (terminal) std::printf("%s", coloured("> ", 1, may_colour(stdout)).c_str());
    std::fflush(stdout);
    std::string line;
    interrupted = false;  // what stopped the answer does not concern the prompt
    if (!std::getline(std::cin, line)) {
      if (!interrupted) break;
      std::cin.clear();  // Ctrl-C at the prompt only clears the line
      clearerr(stdin);
      std::printf("\n");
      continue;
    }
    if (line == "/quit" || line == "/exit") break;
    if (line == "/new") {
      start_over();
      continue;
    }
    if (line.empty()) continue;
    messages.push_back({"user", line});
    const int status = answer(*connected.value, generation, messages);
    if (status != kOk && !terminal) return status;
  }
  if (terminal) std::printf("\n");
  return kOk;
}

}  // namespace baton::cli
