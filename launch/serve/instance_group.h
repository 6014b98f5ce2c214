#pragma once

#include <memory>
#include <string>

#include "launch/serve/engines.h"
#include "launch/serve/instance_spec.h"
#include "runtime/base/result.h"
#include "transport/shm/shm_group.h"

namespace baton {

// What the group of an instance of several ranks is made with, as its rank `rank` (of the cluster)
// sees it; the same window on each. Errors as CpuEngine::create.
Result<ShmGroupOptions> group_options(const OpenedModel& model, const InstanceSpec& instance,
                                      uint32_t rank, const CpuEngineOptions& engine, bool spin);

}  // namespace baton
