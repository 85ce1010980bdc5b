// The loops that all formats with blocks share; for inclusion in *_kernels.cc only. A `Format` gives
//
//   kScaleBytes, kCodesPerByte
//   magnitude(element)                     what the block's maximum is taken of, as an integer
//   put_scale(largest, at)                 writes the scale, which may stand at any address
//   inverse(at), scale(at)                 what elements are multiplied by before rounding, and codes after it
//   code<kStochastic>(quotient, random)
//   value(code, scale)
#pragma once

#include "codec/block_elements.h"

namespace hvd::HVD_SIMD_NAMESPACE {
namespace {

// Scales of a strip of blocks first, then its codes: no block waits for its own maximum, and the elements are still in the
// level-1 cache when they are read again.
constexpr int64_t kStrip = 2048;  // elements
// Blocks below this size share one loop over the strip, with a factor for each element: loops of their own cost more.
constexpr int64_t kLargeBlock = 64;

// One factor for all elements of a loop; where each has its own, a pointer takes its place.
struct Factor {
  float value;
  HVD_SCALAR float operator[](int64_t) const { return value; }
};

// Calls use(i, length) for every block of a strip of `count` elements; a compiler that knows `block` sees that of all
// calls but the last.
template <class Use>
HVD_SCALAR void for_blocks(int64_t count, int64_t block, Use use) {
  const int64_t full = count / block * block;
  for (int64_t i = 0; i < full; i += block) use(i, block);
  if (full < count) use(full, count - full);
}

template <class Format, bool kStochastic, class Elements, class Factors>
HVD_SCALAR void encode_elements(Elements x, int64_t count, Factors inverse, const uint32_t* random, uint8_t* codes) {
  for (int64_t i = 0; i < count; ++i) {
    codes[i] = Format::template code<kStochastic>(x[i] * inverse[i], kStochastic ? random[i] : 0u);
  }
}

template <class Format, bool kStochastic, int64_t kBlock, class Elements>
HVD_SCALAR void encode_run(Elements x, int64_t count, const BlockShape& shape, Draw draw, uint8_t* __restrict run) {
  constexpr int64_t kAhead = 2048;  // the hardware's prefetcher alone left 15 % on the table
  constexpr bool kPacked = Format::kCodesPerByte == 2;
  const int64_t block = kBlock != 0 ? kBlock : shape.block;
  uint8_t* codes = run + (count + block - 1) / block * Format::kScaleBytes;
  [[maybe_unused]] Numbers numbers(shape.seed, draw);
  alignas(64) [[maybe_unused]] uint32_t random[kStochastic ? kStrip : 1];
  alignas(64) [[maybe_unused]] uint8_t unpacked[kPacked ? kStrip : 1];
  alignas(64) float inverse[kStrip];
  for (int64_t first = 0; first < count; first += kStrip) {
    const int64_t here = count - first < kStrip ? count - first : kStrip;
    const Elements strip = x.from(first);
    uint8_t* out = kPacked ? unpacked : codes + first;
    const auto scale = [=](int64_t i) { return run + (first + i) / block * Format::kScaleBytes; };
    for_blocks(here, block, [=](int64_t i, int64_t length) {
      for (int64_t j = 0; j < length; j += 16) __builtin_prefetch(strip.x + i + j + kAhead);
      Format::put_scale(largest_magnitude<Format>(strip.from(i), length), scale(i));
    });
    if (kStochastic) numbers.fill(first, here, random);
    if (block < kLargeBlock) {
      for_blocks(here, block, [=, &inverse](int64_t i, int64_t length) {
        const float factor = Format::inverse(scale(i));
        for (int64_t j = 0; j < length; ++j) inverse[i + j] = factor;
      });
      encode_elements<Format, kStochastic>(strip, here, inverse, random, out);
    } else {
      for_blocks(here, block, [=, &random](int64_t i, int64_t length) {
        encode_elements<Format, kStochastic>(strip.from(i), length, Factor{Format::inverse(scale(i))}, random + i, out + i);
      });
    }
    if (kPacked) pack(unpacked, here, codes + first / 2);
  }
}

template <class Format, bool kStochastic>
void encode(const float* x, int64_t count, const BlockShape& shape, float prescale, Draw draw, uint8_t* run) {
  if (prescale != 1.0f) {
    encode_run<Format, kStochastic, 0>(Scaled<true>{x, prescale}, count, shape, draw, run);
  } else if (shape.block == 128) {
    encode_run<Format, kStochastic, 128>(Scaled<false>{x, prescale}, count, shape, draw, run);
  } else if (shape.block == 32) {
    encode_run<Format, kStochastic, 32>(Scaled<false>{x, prescale}, count, shape, draw, run);
  } else {
    encode_run<Format, kStochastic, 0>(Scaled<false>{x, prescale}, count, shape, draw, run);
  }
}

template <class Format, bool kAdd, class Factors>
HVD_SCALAR void decode_elements(const uint8_t* codes, int64_t count, Factors scale, float* y) {
  for (int64_t i = 0; i < count; ++i) {
    const float value = Format::value(codes[i], scale[i]);
    y[i] = kAdd ? y[i] + value : value;
  }
}

template <class Format, bool kAdd, int64_t kBlock>
HVD_SCALAR void decode_run(const uint8_t* __restrict run, int64_t count, const BlockShape& shape, float* __restrict y) {
  constexpr bool kPacked = Format::kCodesPerByte == 2;
  const int64_t block = kBlock != 0 ? kBlock : shape.block;
  const uint8_t* codes = run + (count + block - 1) / block * Format::kScaleBytes;
  alignas(64) [[maybe_unused]] uint8_t unpacked[kPacked ? kStrip : 1];
  alignas(64) float factors[kStrip];
  for (int64_t first = 0; first < count; first += kStrip) {
    const int64_t here = count - first < kStrip ? count - first : kStrip;
    if (kPacked) unpack(codes + first / 2, here, unpacked);
    const uint8_t* in = kPacked ? unpacked : codes + first;
    float* out = y + first;
    const auto scale = [=](int64_t i) { return Format::scale(run + (first + i) / block * Format::kScaleBytes); };
    if (block < kLargeBlock) {
      for_blocks(here, block, [=, &factors](int64_t i, int64_t length) {
        const float factor = scale(i);
        for (int64_t j = 0; j < length; ++j) factors[i + j] = factor;
      });
      decode_elements<Format, kAdd>(in, here, factors, out);
    } else {
      for_blocks(here, block, [=](int64_t i, int64_t length) {
        decode_elements<Format, kAdd>(in + i, length, Factor{scale(i)}, out + i);
      });
    }
  }
}

template <class Format, bool kAdd>
void decode(const uint8_t* run, int64_t count, const BlockShape& shape, float* y) {
  if (shape.block == 128) {
    decode_run<Format, kAdd, 128>(run, count, shape, y);
  } else {
    decode_run<Format, kAdd, 0>(run, count, shape, y);
  }
}

template <class Format>
constexpr RoundingKernels kernels_of() {
  return {{{encode<Format, false>, decode<Format, false>, decode<Format, true>},
           {encode<Format, true>, decode<Format, false>, decode<Format, true>}}};
}

}  // namespace
}  // namespace hvd::HVD_SIMD_NAMESPACE
