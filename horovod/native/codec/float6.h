// float6: minifloats of 6 bits (E3M2 of OCP Microscaling Formats 1.0), one power-of-two scale byte (e8m0) for each block.
//
//   run   := scale[ceil(count / block)] byte[ceil(count * 6 / 8)]
//   scale := uint8, the block's factor is 2^(scale - 127); 255 marks a block with a non-finite element
//   code  := 6 bits, four to three bytes: s eee mm, bias 3, up to 28; element = value(code) * factor
#pragma once

#include "codec/minifloat.h"

namespace hvd {

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
