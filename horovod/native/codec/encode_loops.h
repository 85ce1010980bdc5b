// How blocks are encoded, whatever their format. For inclusion in *_kernels.cc only; format_list.h says what a Format is.
#pragma once

#include "codec/block_elements.h"
#include "codec/packing.h"
#include "codec/strips.h"

namespace hvd::HVD_SIMD_NAMESPACE {
namespace {

template <class Format, bool kStochastic, class Elements, class Factors>
HVD_SCALAR void encode_elements(Elements x, int64_t count, Factors inverse, const uint32_t* random, uint8_t* codes) {
  for (int64_t i = 0; i < count; ++i) {
    const float quotient = x[i] * inverse[i];
    codes[i] = kStochastic ? Format::stochastic(quotient, random[i]) : Format::nearest(quotient);
  }
}

// The steps that strips go through are functions of their own, so that those who share one do not compile it again each.
// `kBlock` 0 stands for a block size known at run time; a constant one lets the compiler unroll, and wants whole blocks.
template <class Format, int64_t kBlock, class Elements>
[[gnu::noinline]] void put_scales(Elements x, int64_t count, int64_t block_size, Scales<Format, uint8_t> scales) {
  constexpr int64_t kAhead = 2048;  // the hardware's prefetcher alone left 15 % on the table
  const int64_t block = kBlock != 0 ? kBlock : block_size;
  for (int64_t i = 0; i < count; i += block) {
    const int64_t length = kBlock != 0 || count - i > block ? block : count - i;
    for (int64_t j = 0; j < length; j += 16) __builtin_prefetch(x.x + i + j + kAhead);
    put_scale<Format>(Format::scale(largest_magnitude<Format::kSkipsNonFinite>(x.from(i), length)), scales[i]);
  }
}

template <class Format, class Elements>
HVD_SCALAR void put_scales_of(Elements x, int64_t count, int64_t block, Scales<Format, uint8_t> scales) {
  if (block == 128 && count % 128 == 0) {
    put_scales<Format, 128>(x, count, block, scales);
  } else if (block == 32 && count % 32 == 0) {
    put_scales<Format, 32>(x, count, block, scales);
  } else {
    put_scales<Format, 0>(x, count, block, scales);
  }
}

template <class Format, bool kStochastic, class Elements>
[[gnu::noinline]] void put_codes(Elements x, int64_t count, int64_t block, Scales<Format, uint8_t> scales,
                                 const uint32_t* __restrict random, uint8_t* __restrict codes) {
  int64_t done = 0;
  if (block >= kPiece) {
    for (; done + kPiece <= count; done += kPiece) {
      const Factor inverse{inverse_at<Format>(scales[done])};
      encode_elements<Format, kStochastic>(x.from(done), kPiece, inverse, kStochastic ? random + done : random, codes + done);
    }
  }
  if (done == count) return;
  alignas(64) float inverse[kStrip];
  spread(done, count, inverse, [=](int64_t i) { return inverse_at<Format>(scales[i]); });
  encode_elements<Format, kStochastic>(x.from(done), count - done, FactorOfEach{inverse + done},
                                       kStochastic ? random + done : random, codes + done);
}

// Scales of a strip of blocks first, then its codes: no block waits for its own maximum, and the elements are still in the
// level-1 cache when they are read again.
template <class Format, bool kStochastic>
int64_t encode(const float* x, int64_t count, const BlockShape& shape, float prescale, Draw draw, uint8_t* __restrict run) {
  constexpr bool kPacked = Format::kBits != 8;
  const int64_t block = shape.block;
  uint8_t* codes = run + (count + block - 1) / block * Format::kScaleBytes;
  [[maybe_unused]] Numbers numbers(shape.seed, draw);
  alignas(64) uint32_t random[kStochastic ? kStrip : 1];
  alignas(64) [[maybe_unused]] uint8_t unpacked[kPacked ? kStrip : 1];
  for (int64_t first = 0; first < count; first += kStrip) {
    const int64_t here = count - first < kStrip ? count - first : kStrip;
    uint8_t* out = kPacked ? unpacked : codes + first;
    const Scales<Format, uint8_t> scales(run, first, block);
    const Scaled<true> scaled{x + first, prescale};
    const Scaled<false> plain{x + first, 1.0f};
    if (prescale == 1.0f) {
      put_scales_of<Format>(plain, here, block, scales);
    } else {
      put_scales_of<Format>(scaled, here, block, scales);
    }
    if constexpr (kStochastic) {  // beside its random numbers a multiplication by one is nothing
      numbers.fill(first, here, random);
      put_codes<Format, true>(scaled, here, block, scales, random, out);
    } else if (prescale == 1.0f) {
      put_codes<Format, false>(plain, here, block, scales, random, out);
    } else {
      put_codes<Format, false>(scaled, here, block, scales, random, out);
    }
    if constexpr (kPacked) pack<Format::kBits>(unpacked, here, codes + first * Format::kBits / 8);
  }
  return 0;  // scales are chosen so that nothing saturates
}

}  // namespace
}  // namespace hvd::HVD_SIMD_NAMESPACE
