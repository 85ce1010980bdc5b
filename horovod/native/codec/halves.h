// Values of 8-bit minifloat codes by way of IEEE halves, which processors with F16C turn into float32 by themselves: moved
// up, a code is the half of its value times a power of two. A second way to Minifloat8::value(): the same bits in half the
// time. For inclusion in *_kernels.cc only, like block_loops.h.
#pragma once

#include "codec/minifloat.h"

#if defined(__F16C__) && defined(__AVX2__)
#include <immintrin.h>
#define HVD_BY_HALVES
#endif

#ifdef HVD_BY_HALVES
namespace hvd::HVD_SIMD_NAMESPACE {
namespace {

#ifdef __AVX512VL__
constexpr int64_t kHalves = 16;  // at a time
#else
constexpr int64_t kHalves = 8;
#endif

// Vectors at any address.
using Codes = int8_t __attribute__((vector_size(kHalves), aligned(1), may_alias));
using Halves = int16_t __attribute__((vector_size(kHalves * 2)));
using Floats = float __attribute__((vector_size(kHalves * 4), aligned(4), may_alias));

HVD_SCALAR Floats floats_of(Halves halves) {
#ifdef __AVX512VL__
  return _mm512_maskz_cvtph_ps(0xFFFF, reinterpret_cast<__m256i>(halves));  // GCC 12 warns of its own plain one
#else
  return _mm256_cvtph_ps(reinterpret_cast<__m128i>(halves));
#endif
}

// Of kHalves codes.
template <class Minifloat>
HVD_SCALAR Floats values_of(const uint8_t* codes) {
  constexpr int kUp = 10 - Minifloat::kMantissaBits;  // a half's mantissa has 10 bits
  constexpr auto kMagnitude = static_cast<int16_t>(0x7F << kUp);
  constexpr auto kToNaN = static_cast<int16_t>(kMagnitude ^ 0x7E00);
  const Halves signs = __builtin_convertvector(*reinterpret_cast<const Codes*>(codes), Halves);  // in bits 7 to 15
  Halves halves = (signs << kUp) & static_cast<int16_t>(kMagnitude | 0x8000);
  if (!Minifloat::kHasInfinity) halves ^= ((halves & kMagnitude) == kMagnitude) & kToNaN;
  constexpr float kUnbias = static_cast<float>(1 << (15 - Minifloat::kBias));  // a half's bias is 15
  return floats_of(halves) * kUnbias;
}

}  // namespace
}  // namespace hvd::HVD_SIMD_NAMESPACE
#endif
