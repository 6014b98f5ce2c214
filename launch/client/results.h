#pragma once

#include <vector>

#include "actors/protocol/gateway.h"
#include "launch/client/baton_client.h"

// From the protocol's messages to what a program sees.

namespace baton::client {

std::vector<std::vector<TopToken>> tops_of(const std::vector<std::vector<TokenLogprob>>& source);

// Takes what is large out of `done`.
Result result_of(ClientDone& done);

}  // namespace baton::client
