// Floats of few bits: what each bit pattern means and how a float32 is rounded to it, and at the end the codecs' formats that are
// made of them: bit16, fp16, bf16, bit8 and float6. This header is the definition, for host and device alike; every fast path
// is compared with it byte for byte.
//
//   format     sign exponent mantissa  bias  largest   special values                      source
//   half         1      5       10      15    65504     infinities, NaN                    IEEE 754-2019 binary16
//   bfloat16     1      8        7     127    3.39e38   infinities, NaN                    the upper half of a float32
//   e4m3         1      4        3       7    448       NaN = 0x7F, no infinity            OCP 8-bit Floating Point 1.0
//   e5m2         1      5        2      15    57344     infinity = 0x7C, NaN = 0x7D..0x7F  OCP 8-bit Floating Point 1.0
//   e3m4         1      3        4       3    30        NaN = 0x7F, no infinity            e4m3's rule, one bit further
//   e8m0         -      8        -     127    2^127     NaN = 0xFF; a power of two          OCP Microscaling Formats 1.0
//
// Rounding is to nearest, ties to even, on integer bits. The one float operation used, adding a power of two whose unit
// in the last place is the target's smallest subnormal, rounds the same way and never has a subnormal result, so it does
// not depend on flush-to-zero modes. Stochastic rounding adds a random number below one unit and truncates. All functions
// are branch-free: in a plain loop they vectorise.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define HVD_SCALAR __host__ __device__ __forceinline__
#else
#define HVD_SCALAR inline __attribute__((always_inline))
#endif

namespace hvd {

HVD_SCALAR uint32_t bits_of(float value) { return __builtin_bit_cast(uint32_t, value); }
HVD_SCALAR float float_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }

inline constexpr uint32_t kSignBit = 0x80000000u;
inline constexpr uint32_t kInfinity = 0x7F800000u;
inline constexpr uint32_t kQuietNaN = 0x7FC00000u;

// a * b, where a NaN stays the NaN it is: a GPU's own product would be one without sign.
HVD_SCALAR float times_keeping_nan(float a, float b) {
#if defined(__CUDA_ARCH__)
  return a != a ? a : a * b;
#else
  return a * b;
#endif
}

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

// The same, rounded up with a probability equal to the fraction that is cut off: exactly for normal results, to 2^-19 of
// a unit or better for subnormal ones. `random` is uniform over 32 bits, of which the upper ones count.
template <int kMantissaBits, int kBias>
HVD_SCALAR uint32_t round_magnitude_stochastically(uint32_t magnitude, uint32_t random) {
  constexpr int kDropped = 23 - kMantissaBits;
  constexpr uint32_t kSmallestNormal = static_cast<uint32_t>(127 - kBias + 1) << 23;
  constexpr uint32_t kRebias = static_cast<uint32_t>(127 - kBias) << kMantissaBits;
  constexpr uint32_t kFixedPoint = static_cast<uint32_t>(127 + kBias - 1 + 23) << 23;  // 2^kDropped for a subnormal's unit
  const uint32_t below_one = random >> (32 - kDropped);
  const uint32_t normal = ((magnitude + below_one) >> kDropped) - kRebias;
  const float small = float_of(magnitude < kSmallestNormal ? magnitude : 0u);
  const uint32_t fixed = static_cast<uint32_t>(static_cast<int32_t>(small * float_of(kFixedPoint)));
  const uint32_t subnormal = (fixed + below_one) >> kDropped;
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

// ---- e4m3, e5m2, e3m4 and their block scales ------------------------------------------------------------------------

// The part of an element that counts for its block's scale: |x| as bits, 0 if not finite.
HVD_SCALAR uint32_t finite_magnitude(float value) {
  const int32_t magnitude = static_cast<int32_t>(bits_of(value) & ~kSignBit);
  // The difference is negative just for finite values; a mask instead of a choice keeps the caller's maximum vectorisable.
  return static_cast<uint32_t>(magnitude & ((magnitude - static_cast<int32_t>(kInfinity)) >> 31));
}

template <int kFractionBits, int kLargestExponent, uint32_t kLargest, bool kInfinities>
struct Minifloat8 {
  static constexpr int kMantissaBits = kFractionBits;
  static constexpr bool kHasInfinity = kInfinities;
  static constexpr int kExponentBits = 7 - kMantissaBits;
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;

  // For values that a block's scale has brought into range. Where there is no infinity, infinities and NaN become NaN
  // with their sign; their magnitudes round to integers beyond every code, so one minimum catches them.
  static HVD_SCALAR uint8_t code(uint32_t bits, uint32_t rounded) {
    const uint32_t magnitude = bits & ~kSignBit;
    uint32_t code = rounded < 0x7Fu ? rounded : 0x7Fu;
    if (kHasInfinity) {
      code = magnitude >= kInfinity ? 0x7Cu : rounded;
      code = magnitude > kInfinity ? 0x7Eu : code;
    }
    return static_cast<uint8_t>((bits >> 24 & 0x80u) | code);
  }
  static HVD_SCALAR uint8_t nearest(float value) {
    const uint32_t bits = bits_of(value);
    return code(bits, round_magnitude<kMantissaBits, kBias>(bits & ~kSignBit));
  }
  static HVD_SCALAR uint8_t stochastic(float value, uint32_t random) {
    const uint32_t bits = bits_of(value);
    return code(bits, round_magnitude_stochastically<kMantissaBits, kBias>(bits & ~kSignBit, random));
  }

  static HVD_SCALAR float value(uint8_t code) {
    constexpr uint32_t kRebias = static_cast<uint32_t>(127 - kBias) << 23;
    constexpr uint32_t kUnit = static_cast<uint32_t>(127 + 1 - kBias - kMantissaBits) << 23;  // the smallest subnormal
    const uint32_t magnitude = code & 0x7Fu;
    const uint32_t sign = static_cast<uint32_t>(code & 0x80u) << 24;
    const uint32_t normal = (magnitude << (23 - kMantissaBits)) + kRebias;
    const uint32_t subnormal = bits_of(static_cast<float>(static_cast<int32_t>(magnitude)) * float_of(kUnit));
    uint32_t bits = magnitude < (1u << kMantissaBits) ? subnormal : normal;
    if (kHasInfinity) {
      bits = magnitude >= 0x7Cu ? (magnitude << (23 - kMantissaBits)) | kInfinity : bits;
      bits = magnitude > 0x7Cu ? (bits | kQuietNaN) : bits;
    } else {
      bits = magnitude == 0x7Fu ? kQuietNaN : bits;
    }
    return float_of(sign | bits);
  }

  // 127 + ceil(log2(largest / kLargest)), from the bits of the block's largest finite magnitude, so that it does not
  // saturate. 448 = 1.75 * 2^8, hence the exponent minus 8, plus one if the mantissa is above 1.75. At least 1 and at most
  // 251, so that the scale 2^(s - 127) and its inverse are both normal float32.
  static HVD_SCALAR uint8_t scale(uint32_t largest_magnitude) {
    constexpr uint32_t kMantissa = (kLargest & ((1u << kMantissaBits) - 1u)) << (23 - kMantissaBits);
    const int32_t scale = static_cast<int32_t>((largest_magnitude + 0x7FFFFFu - kMantissa) >> 23) - kLargestExponent;
    return static_cast<uint8_t>(scale < 1 ? 1 : scale);
  }
};

using E4M3 = Minifloat8<3, 8, 0x7E, false>;
using E5M2 = Minifloat8<2, 15, 0x7B, true>;
using E3M4 = Minifloat8<4, 4, 0x7E, false>;

// ---- e8m0 -----------------------------------------------------------------------------------------------------------

HVD_SCALAR float e8m0_value(uint8_t scale) {
  const uint32_t normal = static_cast<uint32_t>(scale) << 23;
  return float_of(scale == 0 ? 0x00400000u : scale == 255 ? kQuietNaN : normal);
}

// 2^(127 - s), for scales that Minifloat8::scale() gives.
HVD_SCALAR float e8m0_inverse(uint8_t scale) { return float_of((254u - scale) << 23); }

// ---- bit16, fp16, bf16 ----------------------------------------------------------------------------------------------

// bit16, fp16 and bf16: each element as a 16-bit float, without blocks.
//
//   run  := code[count]
//   code := uint16 little endian
//
//   bit16   IEEE 754 binary16; finite values beyond 65504 saturate there, and are counted
//   fp16    IEEE 754 binary16 as a cast writes it: they become infinite
//   bf16    bfloat16, the upper half of a float32, rounded to nearest even
template <bool kHasHalves, bool kCutsOff>
struct SixteenBits {
  static constexpr int kBits = 16;
  static constexpr int kScaleBytes = 0;
  static constexpr bool kIsHalf = kHasHalves;
  static constexpr bool kSaturates = kCutsOff;
};

struct Bit16 : SixteenBits<true, true> {
  static HVD_SCALAR uint16_t code(float value) { return saturating_half_from_float(value); }
  static HVD_SCALAR float value(uint16_t code) { return float_from_half(code); }
};

struct FP16 : SixteenBits<true, false> {
  static HVD_SCALAR uint16_t code(float value) { return half_from_float(value); }
  static HVD_SCALAR float value(uint16_t code) { return float_from_half(code); }
};

struct BF16 : SixteenBits<false, false> {
  static HVD_SCALAR uint16_t code(float value) { return bfloat16_from_float(value); }
  static HVD_SCALAR float value(uint16_t code) { return float_from_bfloat16(code); }
};

// ---- bit8 -----------------------------------------------------------------------------------------------------------

// bit8: 8-bit minifloat codes, one power-of-two scale byte (e8m0) for each block.
//
//   run   := scale[ceil(count / block)] code[count]
//   scale := uint8, the block's factor is 2^(scale - 127)
//   code  := uint8, e4m3 (or e5m2, e3m4): element = value(code) * factor
template <class Of>
struct Bit8 {
  using Minifloat = Of;
  static constexpr int kBits = 8;
  static constexpr int kScaleBytes = 1;
  static constexpr bool kSkipsNonFinite = true;

  static HVD_SCALAR uint32_t scale(uint32_t largest) { return Minifloat::scale(largest); }
  static HVD_SCALAR float inverse(uint32_t scale) { return e8m0_inverse(static_cast<uint8_t>(scale)); }
  static HVD_SCALAR float factor(uint32_t scale) { return e8m0_value(static_cast<uint8_t>(scale)); }

  static HVD_SCALAR uint8_t nearest(float quotient) { return Minifloat::nearest(quotient); }
  static HVD_SCALAR uint8_t stochastic(float quotient, uint32_t random) { return Minifloat::stochastic(quotient, random); }
  static HVD_SCALAR float value(uint8_t code, float factor) { return times_keeping_nan(Minifloat::value(code), factor); }
};

// ---- float6 ---------------------------------------------------------------------------------------------------------

// float6: minifloats of 6 bits (E3M2 of OCP Microscaling Formats 1.0), one power-of-two scale byte (e8m0) for each block.
//
//   run   := scale[ceil(count / block)] byte[ceil(count * 6 / 8)]
//   scale := uint8, the block's factor is 2^(scale - 127); 255 marks a block with a non-finite element
//   code  := 6 bits, four to three bytes: s eee mm, bias 3, up to 28; element = value(code) * factor
struct Float6Blocks {
  static constexpr int kBits = 6;
  static constexpr int kScaleBytes = 1;
  static constexpr bool kSkipsNonFinite = false;  // they are to spoil the scale
  static constexpr int kMantissaBits = 2;
  static constexpr int kBias = 3;
  static constexpr uint32_t kSpoilt = 255;

  // 127 + ceil(log2(largest / 28)), as Minifloat8 does it: 28 = 1.75 * 2^4.
  static HVD_SCALAR uint32_t scale(uint32_t largest) {
    const int32_t scale = static_cast<int32_t>((largest + 0x7FFFFFu - 0x600000u) >> 23) - 4;
    return largest >= kInfinity ? kSpoilt : static_cast<uint32_t>(scale < 1 ? 1 : scale);
  }
  static HVD_SCALAR float inverse(uint32_t scale) {
    return scale == kSpoilt ? float_of(kQuietNaN) : e8m0_inverse(static_cast<uint8_t>(scale));
  }
  static HVD_SCALAR float factor(uint32_t scale) { return e8m0_value(static_cast<uint8_t>(scale)); }

  // The codes of a spoilt block, whose quotients are NaN, are zeros.
  static HVD_SCALAR uint8_t code(uint32_t bits, uint32_t rounded) {
    return static_cast<uint8_t>((bits & ~kSignBit) < kInfinity ? (bits >> 26 & 0x20u) | rounded : 0u);
  }
  static HVD_SCALAR uint8_t nearest(float quotient) {
    const uint32_t bits = bits_of(quotient);
    return code(bits, round_magnitude<kMantissaBits, kBias>(bits & ~kSignBit));
  }
  static HVD_SCALAR uint8_t stochastic(float quotient, uint32_t random) {
    const uint32_t bits = bits_of(quotient);
    return code(bits, round_magnitude_stochastically<kMantissaBits, kBias>(bits & ~kSignBit, random));
  }
  static HVD_SCALAR float value(uint8_t code, float factor) {
    const uint32_t magnitude = code & 0x1Fu;
    const uint32_t sign = static_cast<uint32_t>(code & 0x20u) << 26;
    const uint32_t normal = (magnitude << (23 - kMantissaBits)) + (static_cast<uint32_t>(127 - kBias) << 23);
    const uint32_t subnormal = bits_of(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-4f);
    return times_keeping_nan(factor, float_of(sign | (magnitude < (1u << kMantissaBits) ? subnormal : normal)));
  }
};

}  // namespace hvd
