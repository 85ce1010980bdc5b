#include "cuda/runtime.h"

#include "base/error.h"

namespace hvd {
namespace {

std::string current_gpu() {
  int index = 0;
  cudaDeviceProp properties{};
  if (cudaGetDevice(&index) != cudaSuccess) return "a GPU";
  std::string gpu = "GPU " + std::to_string(index);
  if (cudaGetDeviceProperties(&properties, index) != cudaSuccess) return gpu;
  return gpu + " (" + properties.name + ")";
}

}  // namespace

void throw_cuda_error(cudaError_t result, const std::string& call) {
  cudaGetLastError();  // clears the error, so that the next call does not report it
  const std::string why = std::string(cudaGetErrorString(result)) + " (" + cudaGetErrorName(result) + ")";
  throw InternalError(Said::cuda_failed, {.others = {{"gpu", current_gpu()}, {"call", call}, {"why", why}}});
}

void check(cudaError_t result, const char* call) {
  if (result != cudaSuccess) throw_cuda_error(result, call);
}

cudaError_t asked(cudaError_t result) {
  if (result == cudaErrorNotReady && cudaPeekAtLastError() == cudaErrorNotReady) static_cast<void>(cudaGetLastError());
  return result;
}

CurrentDevice::CurrentDevice(int index) {
  int before = 0;
  check(cudaGetDevice(&before), "cudaGetDevice");
  if (before == index) return;
  check(cudaSetDevice(index), "cudaSetDevice");
  before_ = before;
}

CurrentDevice::~CurrentDevice() {
  if (before_ >= 0) static_cast<void>(cudaSetDevice(before_));  // cannot fail: it was current before
}

}  // namespace hvd
