#pragma once

#include <string>

namespace baton {

// What a build with BATON_CUDA finds on this host: versions of CUDA, cuDNN and NCCL, and the
// devices, in one line for the banner. Empty in a build without.
std::string devices_text();

}  // namespace baton
