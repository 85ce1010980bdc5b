// What lanes of a warp find out together.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "emulated/threads.h"

namespace emulated_cuda {

template <typename T>
T reduce(Meeting of_unsigned, Meeting of_signed, unsigned mask, T value) {
  static_assert(sizeof(T) == 4 && std::is_integral_v<T>, "the hardware reduces 32-bit integers only");
  const Meeting operation = std::is_signed_v<T> ? of_signed : of_unsigned;
  return static_cast<T>(meet(operation, mask, static_cast<uint32_t>(value), 0));
}

}  // namespace emulated_cuda

inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return static_cast<unsigned>(emulated_cuda::meet(emulated_cuda::Meeting::kBallot, mask, predicate != 0, 0));
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate == 0) == 0; }

template <typename T>
unsigned __match_any_sync(unsigned mask, T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return static_cast<unsigned>(emulated_cuda::meet(emulated_cuda::Meeting::kMatch, mask, bits, 0));
}

#define EMULATED_CUDA_REDUCE(name, of_unsigned, of_signed)                                                         \
  template <typename T>                                                                                            \
  T __reduce_##name##_sync(unsigned mask, T value) {                                                               \
    return emulated_cuda::reduce(emulated_cuda::Meeting::of_unsigned, emulated_cuda::Meeting::of_signed, mask, value); \
  }
EMULATED_CUDA_REDUCE(add, kAdd, kAdd)
EMULATED_CUDA_REDUCE(min, kMin, kMinSigned)
EMULATED_CUDA_REDUCE(max, kMax, kMaxSigned)
EMULATED_CUDA_REDUCE(and, kAnd, kAnd)
EMULATED_CUDA_REDUCE(or, kOr, kOr)
EMULATED_CUDA_REDUCE(xor, kXor, kXor)
#undef EMULATED_CUDA_REDUCE
