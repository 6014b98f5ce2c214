#include "launch/serve/devices.h"

#ifdef BATON_CUDA
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <nccl.h>
#endif

namespace baton {

#ifdef BATON_CUDA

std::string devices_text() {
  int runtime = 0;
  int nccl = 0;
  cudaRuntimeGetVersion(&runtime);
  ncclGetVersion(&nccl);
  std::string text = "CUDA " + std::to_string(runtime / 1000) + "." +
                     std::to_string(runtime % 1000 / 10) + ", cuDNN " +
                     std::to_string(cudnnGetVersion()) + ", NCCL " + std::to_string(nccl) + ": ";
  int count = 0;
  const cudaError_t found = cudaGetDeviceCount(&count);
  if (found != cudaSuccess) return text + cudaGetErrorString(found);
  for (int device = 0; device < count; ++device) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) continue;
    text += (device ? ", " : "") + std::string(properties.name);
  }
  return text + " (engines compute on the CPU)";
}

#else

std::string devices_text() {
  return "";
}

#endif

}  // namespace baton
