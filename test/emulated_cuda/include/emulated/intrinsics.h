// CUDA's functions of one thread, as far as horovod's kernels use them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

using std::max;
using std::min;

inline int __clz(int bits) { return std::countl_zero(static_cast<uint32_t>(bits)); }
inline uint32_t __funnelshift_l(uint32_t low, uint32_t high, uint32_t shift) {
  return static_cast<uint32_t>(((uint64_t{high} << 32 | low) << (shift & 31)) >> 32);
}
inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t shift) {
  return static_cast<uint32_t>((uint64_t{high} << 32 | low) >> (shift & 31));
}
// Bytes of b (high) and a (low), selected by the selector's nibbles.
inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t choice = selector >> (4 * i) & 15;
    const uint32_t byte = static_cast<uint32_t>(bytes >> (8 * (choice & 7))) & 255;
    result |= (choice & 8 ? (byte & 128 ? 255u : 0u) : byte) << (8 * i);
  }
  return result;
}
