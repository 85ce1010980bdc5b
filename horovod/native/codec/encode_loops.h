// How blocks are encoded, whatever their format. For inclusion in *_kernels.cc only; block_loops.h says what a Format is.
#pragma once

#include "codec/block_elements.h"
#include "codec/packing.h"
#include "codec/strips.h"

namespace hvd::HVD_SIMD_NAMESPACE {
namespace {

template <class Format, bool kStochastic, class Elements, class Factors>
HVD_SCALAR void encode_elements(Elements x, int64_t count, Factors inverse, const uint32_t* random, uint8_t* codes) {
  for (int64_t i = 0; i < count; ++i) {
    codes[i] = Format::template code<kStochastic>(x[i] * inverse[i], kStochastic ? random[i] : 0u);
  }
}

// Scales of a strip of blocks first, then its codes: no block waits for its own maximum, and the elements are still in the
// level-1 cache when they are read again. `kBlock` 0 stands for a block size known at run time; a constant one lets the
// compiler unroll.
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
      encode_elements<Format, kStochastic>(strip, here, FactorOfEach{inverse}, random, out);
    } else {
      for_blocks(here, block, [=, &random](int64_t i, int64_t length) {
        const uint32_t* numbers_here = kStochastic ? random + i : random;
        const Factor factor{Format::inverse(scale(i))};
        encode_elements<Format, kStochastic>(strip.from(i), length, factor, numbers_here, out + i);
      });
    }
    if (kPacked) pack(unpacked, here, codes + first / 2);
  }
}

template <class Format, bool kStochastic, class Elements>
HVD_SCALAR void encode_any(Elements x, int64_t count, const BlockShape& shape, Draw draw, uint8_t* run) {
  if (shape.block == 128) {
    encode_run<Format, kStochastic, 128>(x, count, shape, draw, run);
  } else if (shape.block == 32) {
    encode_run<Format, kStochastic, 32>(x, count, shape, draw, run);
  } else {
    encode_run<Format, kStochastic, 0>(x, count, shape, draw, run);
  }
}

template <class Format, bool kStochastic>
void encode(const float* x, int64_t count, const BlockShape& shape, float prescale, Draw draw, uint8_t* run) {
  if (prescale == 1.0f) {
    encode_any<Format, kStochastic>(Scaled<false>{x, prescale}, count, shape, draw, run);
  } else {
    encode_any<Format, kStochastic>(Scaled<true>{x, prescale}, count, shape, draw, run);
  }
}

}  // namespace
}  // namespace hvd::HVD_SIMD_NAMESPACE
