// cudaLaunchKernel with the kernel's parameter types, like CUDA's C++ interface.
#pragma once

#include <functional>
#include <tuple>
#include <utility>

#include "emulated/api.h"
#include "emulated/vectors.h"

namespace emulated_cuda {

__attribute__((visibility("default"))) cudaError_t launch_kernel(std::function<void()> one_thread, dim3 grid, dim3 block,
                                                                 size_t shared_bytes, cudaStream_t stream);

}  // namespace emulated_cuda

template <typename... Parameters>
cudaError_t cudaLaunchKernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, void** addresses, size_t shared_bytes,
                             cudaStream_t stream) {
  // The caller's variables may be gone when the kernel runs.
  auto copies = [&]<size_t... I>(std::index_sequence<I...>) {
    return std::tuple<Parameters...>(*static_cast<Parameters*>(addresses[I])...);
  }(std::index_sequence_for<Parameters...>());
  return emulated_cuda::launch_kernel([kernel, copies = std::move(copies)] { std::apply(kernel, copies); }, grid, block,
                                      shared_bytes, stream);
}
