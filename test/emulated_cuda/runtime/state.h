// The emulated runtime's state of devices, and the start and end of its functions.
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
  int physical = 0;  // the machine's number, which CUDA_VISIBLE_DEVICES does not change
  std::atomic<cudaError_t> failure{cudaSuccess};  // of a kernel; every later call on the device returns it
  std::atomic<size_t> used{0};
  std::atomic<bool> has_context{false};
  size_t memory = 0;
  CUstream_st* default_stream = nullptr;
};

// The devices of this process; read from the environment once, never destroyed.
std::vector<DeviceState>& devices();
DeviceState& current_device_state();
int current_device();

// The result of a function before it does anything: an injected failure, a missing device, or the device's failure.
cudaError_t entry(const char* function);
// Stored for cudaGetLastError.
cudaError_t leave(cudaError_t result);

}  // namespace emulated_cuda

// Opens every function of the runtime.
#define EMULATED_CUDA_ENTER()                                                                   \
  if (const cudaError_t refused = ::emulated_cuda::entry(__func__); refused != cudaSuccess) \
  return ::emulated_cuda::leave(refused)
