// The number formats: what each bit pattern means and how a float32 is rounded to it. This header is the definition, for
// host and device alike; every fast path is compared with it byte for byte.
//
//   format     sign exponent mantissa  bias  largest   special values                      source
//   half         1      5       10      15    65504     infinities, NaN                    IEEE 754-2019 binary16
//   bfloat16     1      8        7     127    3.39e38   infinities, NaN                    the upper half of a float32
//   e4m3         1      4        3       7    448       NaN = 0x7F, no infinity            OCP 8-bit Floating Point 1.0
//   e8m0         -      8        -     127    2^127     NaN = 0xFF; a power of two          OCP Microscaling Formats 1.0
//
// Rounding is to nearest, ties to even, on integer bits. The one float operation used, adding a power of two whose unit
// in the last place is the target's smallest subnormal, rounds the same way and never has a subnormal result, so it does
// not depend on flush-to-zero modes. All functions are branch-free: in a plain loop they vectorise.
#pragma once

#include <cstdint>

#define HVD_SCALAR inline __attribute__((always_inline))

namespace hvd {

HVD_SCALAR uint32_t bits_of(float value) { return __builtin_bit_cast(uint32_t, value); }
HVD_SCALAR float float_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }

inline constexpr uint32_t kSignBit = 0x80000000u;
inline constexpr uint32_t kInfinity = 0x7F800000u;
inline constexpr uint32_t kQuietNaN = 0x7FC00000u;

// Rounds |x|, given by its float32 bits, to a format of `kMantissaBits` and the given exponent bias. The result may carry
// into the exponent, past the format's largest value; infinities and NaN give nonsense. Callers handle both.
template <int kMantissaBits, int kBias>
HVD_SCALAR uint32_t round_magnitude(uint32_t magnitude) {
  constexpr int kDropped = 23 - kMantissaBits;
  constexpr uint32_t kSmallestNormal = static_cast<uint32_t>(127 - kBias + 1) << 23;
  constexpr uint32_t kRebias = static_cast<uint32_t>(127 - kBias) << kMantissaBits;
  // A float whose unit in the last place is the smallest subnormal, 2^(1 - bias - mantissa bits).
  constexpr uint32_t kMagic = static_cast<uint32_t>(127 + 1 - kBias - kMantissaBits + 23) << 23;
  const uint32_t odd = (magnitude >> kDropped) & 1u;
  const uint32_t normal = ((magnitude + ((1u << (kDropped - 1)) - 1u) + odd) >> kDropped) - kRebias;
  const uint32_t subnormal = bits_of(float_of(magnitude) + float_of(kMagic)) - kMagic;
  return magnitude < kSmallestNormal ? subnormal : normal;
}

// ---- half -----------------------------------------------------------------------------------------------------------

// IEEE conversion: values that round beyond 65504 become infinite.
HVD_SCALAR uint16_t half_from_float(float value) {
  const uint32_t bits = bits_of(value);
  const uint32_t magnitude = bits & ~kSignBit;
  uint32_t code = round_magnitude<10, 15>(magnitude);
  code = magnitude >= 0x477FF000u ? 0x7C00u : code;  // 65520, halfway from 65504 to 65536, and above
  code = magnitude > kInfinity ? 0x7E00u : code;
  return static_cast<uint16_t>((bits >> 16 & 0x8000u) | code);
}

// The wire's conversion: finite values beyond 65504 saturate there; infinities and NaN travel as such.
HVD_SCALAR bool half_saturates(float value) {
  const uint32_t magnitude = bits_of(value) & ~kSignBit;
  return (magnitude >= 0x477FF000u) & (magnitude < kInfinity);
}
HVD_SCALAR uint16_t saturating_half_from_float(float value) {
  const uint16_t code = half_from_float(value);
  return half_saturates(value) ? static_cast<uint16_t>(code - 1) : code;  // infinity - 1 = 65504
}

HVD_SCALAR float float_from_half(uint16_t code) {
  const uint32_t magnitude = code & 0x7FFFu;
  const uint32_t sign = static_cast<uint32_t>(code & 0x8000u) << 16;
  const uint32_t normal = (magnitude << 13) + (112u << 23);
  // A subnormal is its mantissa times 2^-24; both factors and the product are exact.
  const uint32_t subnormal = bits_of(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  const uint32_t special = normal + (112u << 23);  // exponent 31 -> 255
  uint32_t bits = magnitude < 0x0400u ? subnormal : normal;
  bits = magnitude >= 0x7C00u ? special : bits;
  bits = magnitude > 0x7C00u ? (bits | kQuietNaN) : bits;
  return float_of(sign | bits);
}

// ---- bfloat16 -------------------------------------------------------------------------------------------------------

HVD_SCALAR uint16_t bfloat16_from_float(float value) {
  const uint32_t bits = bits_of(value);
  const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t quiet = (bits >> 16) | 0x0040u;
  return static_cast<uint16_t>((bits & ~kSignBit) > kInfinity ? quiet : rounded);
}

HVD_SCALAR float float_from_bfloat16(uint16_t code) { return float_of(static_cast<uint32_t>(code) << 16); }

// ---- e4m3 -----------------------------------------------------------------------------------------------------------

// For |value| <= 448, as block scales guarantee; infinities and NaN become NaN with their sign. Their magnitudes round to
// integers beyond every code, so one minimum catches them.
HVD_SCALAR uint8_t e4m3_from_float(float value) {
  const uint32_t bits = bits_of(value);
  const uint32_t code = round_magnitude<3, 7>(bits & ~kSignBit);
  return static_cast<uint8_t>((bits >> 24 & 0x80u) | (code < 0x7Fu ? code : 0x7Fu));
}

HVD_SCALAR float float_from_e4m3(uint8_t code) {
  const uint32_t magnitude = code & 0x7Fu;
  const uint32_t sign = static_cast<uint32_t>(code & 0x80u) << 24;
  const uint32_t normal = (magnitude << 20) + (120u << 23);
  const uint32_t subnormal = bits_of(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-9f);
  uint32_t bits = magnitude < 0x08u ? subnormal : normal;
  bits = magnitude == 0x7Fu ? kQuietNaN : bits;
  return float_of(sign | bits);
}

// ---- e8m0 block scales for e4m3 -------------------------------------------------------------------------------------

// The part of an element that counts for its block's scale: |x| as bits, 0 if not finite.
HVD_SCALAR uint32_t finite_magnitude(float value) {
  const int32_t magnitude = static_cast<int32_t>(bits_of(value) & ~kSignBit);
  // The difference is negative just for finite values; a mask instead of a choice keeps the caller's maximum vectorisable.
  return static_cast<uint32_t>(magnitude & ((magnitude - static_cast<int32_t>(kInfinity)) >> 31));
}

// 127 + ceil(log2(largest / 448)), from the bits of the block's largest finite magnitude, so that it does not saturate:
// 448 = 1.75 * 2^8, hence the exponent minus 8, plus one if the mantissa is above 1.75. At least 1 and at most 247, so that
// the scale 2^(s - 127) and its inverse are both normal float32.
HVD_SCALAR uint8_t e4m3_block_scale(uint32_t largest_magnitude) {
  const int32_t scale = static_cast<int32_t>((largest_magnitude + 0x1FFFFFu) >> 23) - 8;
  return static_cast<uint8_t>(scale < 1 ? 1 : scale);
}

HVD_SCALAR float e8m0_value(uint8_t scale) {
  const uint32_t normal = static_cast<uint32_t>(scale) << 23;
  return float_of(scale == 0 ? 0x00400000u : scale == 255 ? kQuietNaN : normal);
}

// 2^(127 - s), for scales that e4m3_block_scale gives.
HVD_SCALAR float e8m0_inverse(uint8_t scale) { return float_of((254u - scale) << 23); }

}  // namespace hvd
