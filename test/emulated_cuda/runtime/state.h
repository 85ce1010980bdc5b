// What the emulated runtime keeps of devices, and how its functions begin and end.
//
// Environment: EMULATED_CUDA_DEVICES (4), EMULATED_CUDA_MEMORY (bytes of each, 4 GiB), EMULATED_CUDA_PEERS=0 (no GPU reaches
// another), EMULATED_CUDA_FAIL="cudaMalloc:3:2" (the third call of that function in this process fails with error 2; several
// by commas), CUDA_VISIBLE_DEVICES.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "cuda_runtime.h"

namespace emulated_cuda {

struct DeviceState {
  int physical = 0;  // number among the machine's, which CUDA_VISIBLE_DEVICES does not change
  std::atomic<cudaError_t> failure{cudaSuccess};  // of a kernel; from then on every call on the device gives it
  std::atomic<size_t> used{0};
  std::atomic<bool> has_context{false};
  size_t memory = 0;
  CUstream_st* default_stream = nullptr;
};

// Of this process; read from the environment once, never destroyed.
std::vector<DeviceState>& devices();
DeviceState& current_device_state();
int current_device();

// What a function gives before it does anything: an injected failure, no device at all, or the device's failure.
cudaError_t entry(const char* function);
// Kept for cudaGetLastError.
cudaError_t leave(cudaError_t result);

}  // namespace emulated_cuda

// Opens every function of the runtime.
#define EMULATED_CUDA_ENTER()                                                                   \
  if (const cudaError_t refused = ::emulated_cuda::entry(__func__); refused != cudaSuccess) \
  return ::emulated_cuda::leave(refused)
