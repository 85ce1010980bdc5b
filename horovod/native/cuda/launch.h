// How kernels are launched: never by <<<>>>, so that files of kernels are plain C++ to a compiler that knows no CUDA. Tests
// compile them against an emulation of the runtime (test/emulated_cuda/), which brings a cuda_runtime.h of its own.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <type_traits>

#include "cuda/check.h"
#include "device/stream.h"

namespace hvd {

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
