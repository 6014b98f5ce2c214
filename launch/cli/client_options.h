#pragma once

#include <cstdint>
#include <string>

#include "launch/cli/command.h"
#include "launch/client/baton_client.h"

namespace baton::cli {

// The options that every verb with a client has: where the server is, and how to generate.
struct ClientOptions {
  std::string endpoint = "tcp://127.0.0.1:5757";
  int64_t connect_timeout_ms = 5000;

  void enroll(Command& command);
  client::Options of(const std::string& name) const;
};

struct GenerationOptions {
  int64_t max_tokens = -1;
  int64_t min_tokens = 0;
  double temperature = 0;
  int64_t top_k = 0;
  double top_p = 1;
  double min_p = 0;
  double repetition_penalty = 1;
  double presence_penalty = 0;
  double frequency_penalty = 0;
  int64_t seed = -1;
  int64_t logprobs = -1;
  int64_t deadline_ms = 0;
  bool ignore_eos = false;
  std::vector<std::string> stop;
  int64_t choices = 1;

  void enroll(Command& command);
  void enroll_choices(Command& command);  // for verbs that can show several
  void fill(client::Request& request) const;
};

// Prints "baton VERB: text" to stderr and returns the exit status that belongs to the code.
int report_error(const std::string& verb, const client::Error& error);

// The verbs. Each takes main's arguments and returns the exit status.
int serve_main(int argc, char** argv);
int submit_main(int argc, char** argv);
int chat_main(int argc, char** argv);
int batch_main(int argc, char** argv);
int status_main(int argc, char** argv);
int inspect_main(int argc, char** argv);
int tokenize_main(int argc, char** argv);
int simulate_main(int argc, char** argv);

}  // namespace baton::cli
