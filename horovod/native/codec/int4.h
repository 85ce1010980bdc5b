// int4: integers from -7 to 7, two to a byte, one float32 scale for each block; a NaN scale marks a block with a
// non-finite element.
//
//   run   := scale[ceil(count / block)] pair[ceil(count / 2)]
//   scale := float32 little endian
//   pair  := uint8: code 2k in the lower bits of byte k, code 2k + 1, or 0 after the last, in the upper ones
//   code  := 4 bits, two's complement: element = code * scale; with Lloyd-Max levels a sign and the index of a level
//
// Rotated (codec/rotation.h), the codes of a full block are those of its Hadamard transform; a tail shorter than the block
// is always written as without rotation.
#pragma once

#include "codec/integers.h"

namespace hvd {

struct Int4Blocks {
  static constexpr int kBits = 4;
  static constexpr int kScaleBytes = 4;
  static constexpr bool kSkipsNonFinite = false;  // they are to spoil the scale

  static HVD_SCALAR uint32_t scale(uint32_t largest) { return largest < kInfinity ? bits_of(Int4::scale(largest)) : kQuietNaN; }
  static HVD_SCALAR float inverse(uint32_t scale) { return is_finite(float_of(scale)) ? 1.0f / float_of(scale) : 0.0f; }
  static HVD_SCALAR float factor(uint32_t scale) { return float_of(scale); }

  static HVD_SCALAR uint8_t nearest(float quotient) { return int4_code(quotient, Int4::nearest(quotient)); }
  static HVD_SCALAR uint8_t stochastic(float quotient, uint32_t random) {
    return int4_code(quotient, Int4::stochastic(quotient, random));
  }
  static HVD_SCALAR float value(uint8_t code, float factor) { return times_keeping_nan(factor, int4_value(code)); }
};

// What a list of formats has to know of the rotated ones.
template <bool kHasLloydLevels>
struct RotatedInt4 : Int4Blocks {
  static constexpr bool kLloyd = kHasLloydLevels;
};

}  // namespace hvd
