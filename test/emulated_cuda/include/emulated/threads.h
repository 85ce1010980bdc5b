// A kernel's threads. The threads of a block are coroutines on one thread of the CPU: each runs until it has to wait for
// others, at a barrier or at an operation of its warp. Warps have 32 lanes and CUDA's rules: all lanes of a mask must meet at
// the same operation with the same mask, or the launch fails and the GPU with it.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "emulated/vectors.h"

namespace emulated_cuda {

struct Coordinates {
  dim3 thread, block, block_size;
};
// Returns the coordinates of the calling coroutine, which never change: the compiler may call it only once.
__attribute__((const, visibility("default"))) const Coordinates& here();
__attribute__((visibility("default"))) std::byte* dynamic_shared();

enum class Meeting : uint8_t { kSync, kShuffle, kBallot };
// The operation of a warp: waits for the lanes of the mask, and returns this lane's result. `lane` is the lane whose value is
// read.
__attribute__((visibility("default"))) uint64_t meet(Meeting operation, unsigned mask, uint64_t value, int lane);
__attribute__((visibility("default"))) int own_lane();
__attribute__((visibility("default"))) void block_barrier();

template <typename T>
T shuffle(unsigned mask, T value, int lane) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = meet(Meeting::kShuffle, mask, bits, lane);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace emulated_cuda

#define threadIdx (::emulated_cuda::here().thread)
#define blockIdx (::emulated_cuda::here().block)
#define blockDim (::emulated_cuda::here().block_size)

inline void __syncthreads() { emulated_cuda::block_barrier(); }
inline void __syncwarp(unsigned mask = 0xffffffffu) { emulated_cuda::meet(emulated_cuda::Meeting::kSync, mask, 0, 0); }
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return static_cast<unsigned>(emulated_cuda::meet(emulated_cuda::Meeting::kBallot, mask, predicate != 0, 0));
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }

// A lane outside of the segment of `width` keeps its value.
template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const int first = emulated_cuda::own_lane() & ~(width - 1);
  return emulated_cuda::shuffle(mask, value, first + (source & (width - 1)));
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32) {
  const int lane = emulated_cuda::own_lane(), source = lane ^ lanes;
  return emulated_cuda::shuffle(mask, value, source > (lane | (width - 1)) ? lane : source);
}
