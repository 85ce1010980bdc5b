// The loops that all formats with blocks share; for inclusion in *_kernels.cc only. A `Format` gives
//
//   kScaleBytes, kCodesPerByte
//   magnitude(float)                              what the block's maximum is taken of, as an integer
//   put_scale(largest, at), get_scale(at)         the scale's bytes, which may stand at any address
//   encode<kStochastic>(element, count, scale, random, codes), decode<kAdd>(codes, count, scale, y)    one block
#pragma once

#include "codec/block_elements.h"

namespace hvd::HVD_SIMD_NAMESPACE {
namespace {

constexpr int64_t kTogether = 4096;  // elements whose scales are found before their codes

// Scales of some blocks first, then their codes: no block waits for its own maximum, and the elements are still in the
// level-1 cache when they are read again. `kBlock` 0 stands for a block size known at run time; a constant one lets the
// compiler unroll.
template <class Format, bool kStochastic, int64_t kBlock, class Elements>
HVD_SCALAR void encode_run(Elements x, int64_t count, const BlockShape& shape, Draw draw, uint8_t* __restrict run) {
  constexpr int64_t kAhead = 2048;  // the hardware's prefetcher alone left 15 % on the table
  const int64_t block = kBlock != 0 ? kBlock : shape.block;
  const int64_t blocks = (count + block - 1) / block;
  uint8_t* codes = run + blocks * Format::kScaleBytes;
  [[maybe_unused]] Numbers numbers(shape.seed, draw);
  alignas(64) [[maybe_unused]] uint32_t random[kStochastic ? kLargestBlock : 1];
  const int64_t full = count / block;
  for (int64_t first = 0; first < full; first += kTogether / block) {
    const int64_t last = first + kTogether / block < full ? first + kTogether / block : full;
    for (int64_t b = first; b < last; ++b) {
      for (int64_t i = 0; i < block; i += 16) __builtin_prefetch(x.x + b * block + i + kAhead);
      Format::put_scale(largest_magnitude<Format>(x.from(b * block), block), run + b * Format::kScaleBytes);
    }
    for (int64_t b = first; b < last; ++b) {
      if (kStochastic) numbers.fill(b * block, block, random);
      Format::template encode<kStochastic>(x.from(b * block), block, Format::get_scale(run + b * Format::kScaleBytes), random,
                                           codes + b * block / Format::kCodesPerByte);
    }
  }
  if (full < blocks) {
    const int64_t length = count - full * block;
    const Elements rest = x.from(full * block);
    uint8_t* scale = run + full * Format::kScaleBytes;
    Format::put_scale(largest_magnitude<Format>(rest, length), scale);
    if (kStochastic) numbers.fill(full * block, length, random);
    Format::template encode<kStochastic>(rest, length, Format::get_scale(scale), random,
                                         codes + full * block / Format::kCodesPerByte);
  }
}

template <class Format, bool kStochastic>
void encode(const float* x, int64_t count, const BlockShape& shape, float prescale, Draw draw, uint8_t* run) {
  if (kStochastic || prescale != 1.0f) {
    encode_run<Format, kStochastic, 0>(Scaled<true>{x, prescale}, count, shape, draw, run);
  } else if (shape.block == 128) {
    encode_run<Format, kStochastic, 128>(Scaled<false>{x, prescale}, count, shape, draw, run);
  } else if (shape.block == 32) {
    encode_run<Format, kStochastic, 32>(Scaled<false>{x, prescale}, count, shape, draw, run);
  } else {
    encode_run<Format, kStochastic, 0>(Scaled<false>{x, prescale}, count, shape, draw, run);
  }
}

template <class Format, bool kAdd>
void decode(const uint8_t* __restrict run, int64_t count, const BlockShape& shape, float* __restrict y) {
  const int64_t block = shape.block;
  const int64_t blocks = (count + block - 1) / block;
  const uint8_t* codes = run + blocks * Format::kScaleBytes;
  const int64_t full = count / block;
  for (int64_t b = 0; b < full; ++b) {
    const auto scale = Format::get_scale(run + b * Format::kScaleBytes);
    const int64_t at = b * block / Format::kCodesPerByte;
    if (block == 128) {
      Format::template decode<kAdd>(codes + b * 128 / Format::kCodesPerByte, 128, scale, y + b * 128);
    } else {
      Format::template decode<kAdd>(codes + at, block, scale, y + b * block);
    }
  }
  if (full < blocks) {
    Format::template decode<kAdd>(codes + full * block / Format::kCodesPerByte, count - full * block,
                                  Format::get_scale(run + full * Format::kScaleBytes), y + full * block);
  }
}

template <class Format>
constexpr RoundingKernels kernels_of() {
  return {{{encode<Format, false>, decode<Format, false>, decode<Format, true>},
           {encode<Format, true>, decode<Format, false>, decode<Format, true>}}};
}

}  // namespace
}  // namespace hvd::HVD_SIMD_NAMESPACE
