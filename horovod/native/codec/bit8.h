// bit8: 8-bit minifloat codes, one power-of-two scale byte (e8m0) for each block.
//
//   run   := scale[ceil(count / block)] code[count]
//   scale := uint8, the block's factor is 2^(scale - 127)
//   code  := uint8, e4m3 (or e5m2, e3m4): element = value(code) * factor
#pragma once

#include "codec/minifloat.h"

namespace hvd {

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

}  // namespace hvd
