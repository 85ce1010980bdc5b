// What int4 does to a full block before quantising it when it is rotated: random signs, then a Walsh-Hadamard transform,
// which spread every element over the whole block, so that no outlier spoils its neighbours and the values look Gaussian.
// This header is the definition. `n` is the block, a power of two; H is the transform without its factor 1 / sqrt(n).
//
//   encoding   t = sign * x * 2^(127 - e)          e: exponent field of the block's largest magnitude, 15..253
//              y = H t,  code = quantised(y / step)
//              scale = step * 2^(e - 127) / n      the step is amax(y) / 7, or sqrt(sum t^2) with Lloyd-Max levels
//   decoding   x = sign * H(level(code)) * scale   clamped to the finite float32 values
//
// The order of all additions is part of the definition: the transform's stages are those of rotation_stage(), from the
// distance n / 2 down to 1, and squares are summed in 16 lanes (sum_of_lanes).
#pragma once

#include "codec/minifloat.h"

namespace hvd {

// One stage in constant geometry: reads the halves, writes pairs. After log2(n) of them the order is natural again.
HVD_SCALAR void rotation_stage(const float* __restrict in, float* __restrict out, int64_t n) {
  for (int64_t i = 0; i < n / 2; ++i) {
    const float a = in[i];
    const float b = in[i + n / 2];
    out[2 * i] = a + b;
    out[2 * i + 1] = a - b;
  }
}

struct RotationScale {
  float before;  // 2^(127 - e), what elements are multiplied by
  float after;   // 2^(e - 127) / n, from the step in y to the scale of x
  float back;    // its inverse
};

HVD_SCALAR RotationScale rotation_scale(uint32_t largest_magnitude, int64_t n) {
  uint32_t e = largest_magnitude >> 23;
  e = e < 15 ? 15 : e > 253 ? 253 : e;  // so that no factor, and no scale but a zero block's, leaves the normal range
  const uint32_t log2n = static_cast<uint32_t>(__builtin_ctzll(static_cast<uint64_t>(n)));
  return {float_of((254 - e) << 23), float_of((e - log2n) << 23), float_of((254 - e + log2n) << 23)};
}

// The block's scale; a step too small for it is widened. `step` is that of y.
HVD_SCALAR float rotated_block_scale(float step, RotationScale rotation) {
  const float scale = step * rotation.after;
  return scale > 0x1p-126f ? scale : 0x1p-126f;
}

HVD_SCALAR float sum_of_lanes(float* lanes) {
  for (int64_t width = 8; width > 0; width /= 2) {
    for (int64_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

// NaN stays; only the reconstruction's own error can have led beyond FLT_MAX.
HVD_SCALAR float clamped(float value) {
  constexpr float kLargest = 0x1.FFFFFEp127f;
  value = value > kLargest ? kLargest : value;
  return value < -kLargest ? -kLargest : value;
}

// ---- Lloyd-Max levels -----------------------------------------------------------------------------------------------

// The 16 levels that represent a unit Gaussian with the least square error (0.009497), upper half: each level is the mean
// of its cell, each threshold the middle between two levels. Found by fixed-point iteration in double precision and
// rounded to float32; test_codec_integers.py computes them again.
inline constexpr float kLloydLevels[8] = {0.128395036f, 0.388048291f, 0.656759143f, 0.942340434f,
                                          1.25623119f,  1.6180464f,   2.06901717f,  2.73258948f};
inline constexpr float kLloydThresholds[7] = {0.258221656f, 0.522403717f, 0.799549758f, 1.09928584f,
                                              1.4371388f,   1.84353185f,  2.40080333f};

// s iii: sign and index of the level.
HVD_SCALAR uint8_t lloyd_code(float quotient) {
  const float magnitude = float_of(bits_of(quotient) & ~kSignBit);
  uint32_t index = 0;
  for (const float threshold : kLloydThresholds) index += magnitude > threshold ? 1u : 0u;
  return static_cast<uint8_t>((bits_of(quotient) >> 28 & 8u) | index);
}

HVD_SCALAR float lloyd_value(uint8_t code) {
  const uint32_t nibble = code;
  // Choices by one bit each: they vectorise where a table does not.
  const float* l = kLloydLevels;
  const bool low = (nibble & 1u) != 0;
  const float first = (nibble & 2u) != 0 ? (low ? l[3] : l[2]) : (low ? l[1] : l[0]);
  const float second = (nibble & 2u) != 0 ? (low ? l[7] : l[6]) : (low ? l[5] : l[4]);
  return float_of(bits_of((nibble & 4u) != 0 ? second : first) | (nibble & 8u) << 28);
}

}  // namespace hvd
