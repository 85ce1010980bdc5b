// How the CUDA runtime is called: what it refuses, which GPU is current, and how kernels are launched.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <string>
#include <type_traits>

#include "device/stream.h"

namespace hvd {

// Throws InternalError unless the call was a success: "GPU 0 (NVIDIA H200): cudaMalloc of 8 bytes: out of memory
// (cudaErrorMemoryAllocation)". The GPU is the thread's current one.
void check(cudaError_t result, const char* call);
[[noreturn]] void throw_cuda_error(cudaError_t result, const std::string& call);

// What cudaEventQuery or cudaStreamQuery says. cudaErrorNotReady is no failure, and is not left behind as the thread's last
// error, by which whoever launches the next kernel would take it for one.
cudaError_t asked(cudaError_t result);

// Makes a GPU the thread's current one for a scope.
class CurrentDevice {
 public:
  explicit CurrentDevice(int index);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int before_ = -1;  // -1: it was the current one already
};

// ---- launches -------------------------------------------------------------------------------------------------------

// Kernels are launched never by <<<>>>, so that files of kernels are plain C++ to a compiler that knows no CUDA. Tests
// compile them against an emulation of the runtime (test/emulated_cuda/), which brings a cuda_runtime.h of its own.
//
// The stream's GPU must be the thread's current one. Arguments become the kernel's parameters as in a call.
template <typename... Parameters>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes, Stream stream,
            std::type_identity_t<Parameters>... parameters) {
  void* addresses[] = {const_cast<void*>(static_cast<const volatile void*>(&parameters))..., nullptr};
  check(cudaLaunchKernel(kernel, grid, block, addresses, shared_bytes, static_cast<cudaStream_t>(stream)), "cudaLaunchKernel");
}

// The block's memory of `shared_bytes`, aligned to 16 bytes.
#ifdef __CUDACC__
__device__ inline std::byte* dynamic_shared() {
  extern __shared__ uint4 hvd_dynamic_shared[];
  return reinterpret_cast<std::byte*>(hvd_dynamic_shared);
}
#else
inline std::byte* dynamic_shared() { return emulated_cuda::dynamic_shared(); }
#endif

}  // namespace hvd
