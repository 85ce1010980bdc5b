#include "cuda_runtime.h"

namespace {

struct Words {
  cudaError_t error;
  const char* name;
  const char* meaning;
};

const Words kWords[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered", "memory is already registered"},
    {cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered", "memory is not registered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
};

const Words& words_of(cudaError_t error) {
  for (const Words& words : kWords) {
    if (words.error == error) return words;
  }
  static const Words unknown = {cudaSuccess, "unrecognized error code", "unrecognized error code"};
  return unknown;
}

}  // namespace

const char* cudaGetErrorName(cudaError_t error) { return words_of(error).name; }
const char* cudaGetErrorString(cudaError_t error) { return words_of(error).meaning; }
