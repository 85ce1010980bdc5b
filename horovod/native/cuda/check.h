// What the CUDA runtime refuses becomes an InternalError.
#pragma once

#include <cuda_runtime.h>

#include <string>

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

}  // namespace hvd
