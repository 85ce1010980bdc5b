// int8: integers from -127 to 127, one float32 scale for each block.
//
//   run   := scale[ceil(count / block)] code[count]
//   scale := float32 little endian, amax / 127
//   code  := int8: element = code * scale; -128 is NaN
#pragma once

#include "codec/integers.h"

namespace hvd {

struct Int8Blocks {
  static constexpr int kBits = 8;
  static constexpr int kScaleBytes = 4;
  static constexpr bool kSkipsNonFinite = true;

  static HVD_SCALAR uint32_t scale(uint32_t largest) { return bits_of(Int8::scale(largest)); }
  static HVD_SCALAR float inverse(uint32_t scale) { return 1.0f / float_of(scale); }
  static HVD_SCALAR float factor(uint32_t scale) { return float_of(scale); }

  static HVD_SCALAR uint8_t nearest(float quotient) { return int8_code(quotient, Int8::nearest(quotient)); }
  static HVD_SCALAR uint8_t stochastic(float quotient, uint32_t random) {
    return int8_code(quotient, Int8::stochastic(quotient, random));
  }
  static HVD_SCALAR float value(uint8_t code, float factor) { return int8_value(code, factor); }
};

}  // namespace hvd
