#include <vector>

#include "memory.h"
#include "stream.h"

using namespace emulated_cuda;

// Pageable memory is read and written during the call, as CUDA does: code that relies on the opposite fails.
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  EMULATED_CUDA_ENTER();
  CUstream_st* real = usable(stream);
  if (real == nullptr) return leave(cudaErrorInvalidResourceHandle);
  if (bytes == 0) return cudaSuccess;
  MemoryKind source, destination;
  if (to == nullptr || from == nullptr || !kind_of(from, bytes, &source) || !kind_of(to, bytes, &destination)) {
    return leave(cudaErrorInvalidValue);
  }
  if (source == MemoryKind::kPageable && destination == MemoryKind::kDevice) {
    const char* begin = static_cast<const char*>(from);
    real->enqueue([to, staged = std::vector<char>(begin, begin + bytes)] { std::memcpy(to, staged.data(), staged.size()); });
    return cudaSuccess;
  }
  real->enqueue([to, from, bytes] { std::memmove(to, from, bytes); });
  if (destination == MemoryKind::kPageable) return cudaStreamSynchronize(stream);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* memory, int byte, size_t bytes, cudaStream_t stream) {
  EMULATED_CUDA_ENTER();
  CUstream_st* real = usable(stream);
  if (real == nullptr) return leave(cudaErrorInvalidResourceHandle);
  MemoryKind kind;
  if (bytes != 0 && (!kind_of(memory, bytes, &kind) || kind == MemoryKind::kPageable)) return leave(cudaErrorInvalidValue);
  real->enqueue([memory, byte, bytes] { std::memset(memory, byte, bytes); });
  return cudaSuccess;
}
