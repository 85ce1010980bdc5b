// bit16, fp16 and bf16: each element as a 16-bit float, without blocks.
//
//   run  := code[count]
//   code := uint16 little endian
//
//   bit16   IEEE 754 binary16; finite values beyond 65504 saturate there, and are counted
//   fp16    IEEE 754 binary16 as a cast writes it: they become infinite
//   bf16    bfloat16, the upper half of a float32, rounded to nearest even
#pragma once

#include "codec/minifloat.h"

namespace hvd {

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

}  // namespace hvd
