// Small integers under a float32 scale: what int8 and int4 write. This header is the definition, for host and device.
//
//   format  codes       scale                    non-finite elements
//   int8    -127..127   amax / 127, per block    the code -128; the scale is that of the finite ones
//   int4    -7..7       amax / 7, per block      a NaN scale: the whole block is NaN
//
// Scales are at least 2^-126 and so small that the largest code times the scale is finite: scale, inverse and products
// are normal float32 for every finite input, and nothing depends on flush-to-zero modes. An element is multiplied by the
// inverse, 1 / scale rounded to float32; the product is at most kLargest * (1 + 2^-22) and rounded to an integer.
#pragma once

#include "codec/minifloat.h"

namespace hvd {

template <int32_t kLargest>
struct SmallInteger {
  // The largest float whose product with kLargest is finite: FLT_MAX / 127 rounded down, FLT_MAX / 7 is exact.
  static constexpr float kLargestScale = kLargest == 127 ? 0x810203p98f : 0x1.FFFFFEp127f / kLargest;

  static HVD_SCALAR float scale(uint32_t largest_magnitude) {
    const uint32_t least = bits_of(kLargest * 0x1p-126f);
    const float scale = float_of(largest_magnitude > least ? largest_magnitude : least) / kLargest;
    return scale < kLargestScale ? scale : kLargestScale;
  }

  // To nearest, ties to even, by adding a float whose unit is one. NaN and infinities give nonsense.
  static HVD_SCALAR int32_t nearest(float quotient) {
    return static_cast<int32_t>(bits_of(quotient + 0x1.8p23f) - bits_of(0x1.8p23f));
  }

  // Away from zero with the probability of the fraction that is cut off, to 2^-24; never beyond kLargest.
  static HVD_SCALAR int32_t stochastic(float quotient, uint32_t random) {
    const uint32_t magnitude = bits_of(quotient) & ~kSignBit;
    const float finite = float_of(magnitude < kInfinity ? magnitude : 0u);
    const uint32_t fixed = static_cast<uint32_t>(static_cast<int32_t>(finite * 0x1p24f));
    const int32_t rounded = static_cast<int32_t>((fixed + (random >> 8)) >> 24);
    const int32_t integer = rounded < kLargest ? rounded : kLargest;
    return (bits_of(quotient) & kSignBit) != 0 ? -integer : integer;
  }
};

using Int8 = SmallInteger<127>;
using Int4 = SmallInteger<7>;

HVD_SCALAR bool is_finite(float value) { return (bits_of(value) & ~kSignBit) < kInfinity; }

inline constexpr uint8_t kInt8NaN = 0x80;

HVD_SCALAR uint8_t int8_code(float quotient, int32_t rounded) {
  return is_finite(quotient) ? static_cast<uint8_t>(rounded) : kInt8NaN;
}

HVD_SCALAR float int8_value(uint8_t code, float scale) {
  const float product = static_cast<float>(static_cast<int8_t>(code)) * scale;
  return float_of(code == kInt8NaN ? kQuietNaN : bits_of(product));
}

// The codes of a spoilt block, whose quotients may be NaN, are zeros.
HVD_SCALAR uint8_t int4_code(float quotient, int32_t rounded) {
  return is_finite(quotient) ? static_cast<uint8_t>(rounded & 15) : uint8_t{0};
}

// Of a nibble: two's complement, -8 to 7.
HVD_SCALAR float int4_value(uint8_t nibble) { return static_cast<float>((nibble ^ 8) - 8); }

}  // namespace hvd
