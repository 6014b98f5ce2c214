#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launch/client/baton_client.h"
#include "runtime/base/result.h"

namespace baton::cli {

// One line of a batch's input: an id that is unique in the file, and the request.
//   {"id": "a", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8}
// One of `messages`, `prompt` (a text) and `prompt_ids`; the other members are the request's, under
// the names of client::Request. A line without `id` gets its line number.
struct BatchLine {
  std::string id;
  client::Request request;
};

// Reads all lines over `defaults`. The error names the line and what is wrong with it.
Result<std::vector<BatchLine>> read_batch(std::string_view text, const client::Request& defaults);

// The output line of a result, and of an error; JSON without a line feed. Of several choices there
// is one object each, under "choices".
std::string result_line(const client::Request& request, const client::Result& result);
std::string error_line(const client::Request& request, const client::Error& error);

}  // namespace baton::cli
