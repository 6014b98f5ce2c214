#pragma once

#include <string>

#include "actors/protocol/scheduler.h"
#include "launch/serve/engines.h"
#include "launch/serve/serve_options.h"
#include "launch/serve/topology.h"

namespace baton {

// What a server says of itself when it is ready: version, model, instruction set, the table of
// ranks, how many sequences fit, where to connect, and how long it took.
std::string banner_text(const OpenedModel& model, const ServeOptions& options,
                        const Topology& topology, const ClusterReply& cluster,
                        const std::string& endpoint, double seconds);

// Tells scripts that the server is ready: "endpoint=...", "pid=..." a line. The file appears whole.
void write_ready_file(const std::string& path, const std::string& endpoint);

}  // namespace baton
