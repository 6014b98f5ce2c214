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

// Prints the banner and writes --ready-file ("endpoint=...", "pid=..." a line), if asked for; the
// file appears whole.
void announce_ready(const OpenedModel& model, const ServeOptions& options, const Topology& topology,
                    const ClusterReply& cluster, const std::string& endpoint, double seconds);

}  // namespace baton
