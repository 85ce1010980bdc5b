// Functions of one thread that CUDA adds to C++.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

using std::max;
using std::min;

template <typename T>
T __ldg(const T* address) {
  return *address;
}
template <typename T>
T __ldcs(const T* address) {
  return *address;
}
template <typename T>
T __ldcg(const T* address) {
  return *address;
}
template <typename T>
void __stcs(T* address, const std::type_identity_t<T>& value) {
  *address = value;
}
template <typename T>
void __stcg(T* address, const std::type_identity_t<T>& value) {
  *address = value;
}

inline uint32_t __float_as_uint(float value) { return std::bit_cast<uint32_t>(value); }
inline int32_t __float_as_int(float value) { return std::bit_cast<int32_t>(value); }
inline float __uint_as_float(uint32_t bits) { return std::bit_cast<float>(bits); }
inline float __int_as_float(int32_t bits) { return std::bit_cast<float>(bits); }
inline long long __double_as_longlong(double value) { return std::bit_cast<long long>(value); }
inline double __longlong_as_double(long long bits) { return std::bit_cast<double>(bits); }

// Each rounds once, to nearest even.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline float __double2float_rn(double value) { return static_cast<float>(value); }
inline int __float2int_rn(float value) { return static_cast<int>(std::nearbyint(value)); }
inline float __int2float_rn(int value) { return static_cast<float>(value); }

inline int __popc(uint32_t bits) { return std::popcount(bits); }
inline int __popcll(uint64_t bits) { return std::popcount(bits); }
inline int __clz(int bits) { return std::countl_zero(static_cast<uint32_t>(bits)); }
inline int __clzll(long long bits) { return std::countl_zero(static_cast<uint64_t>(bits)); }
inline int __ffs(int bits) { return bits == 0 ? 0 : std::countr_zero(static_cast<uint32_t>(bits)) + 1; }
inline uint32_t __umulhi(uint32_t a, uint32_t b) { return static_cast<uint32_t>((uint64_t{a} * b) >> 32); }
inline uint64_t __umul64hi(uint64_t a, uint64_t b) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(a) * b) >> 64);
}
inline uint32_t __funnelshift_l(uint32_t low, uint32_t high, uint32_t shift) {
  return static_cast<uint32_t>(((uint64_t{high} << 32 | low) << (shift & 31)) >> 32);
}
inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t shift) {
  return static_cast<uint32_t>((uint64_t{high} << 32 | low) >> (shift & 31));
}
// Bytes of b (high) and a (low), picked by the selector's nibbles.
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
