// Blocks of e4m3 codes, vectorised by the compiler: compiled once per instruction set.
#include "codec/kernels.h"
#include "codec/minifloat.h"

namespace hvd::HVD_SIMD_NAMESPACE {
namespace {

template <bool kScaled>
HVD_SCALAR float scaled(float x, float prescale) {
  return kScaled ? x * prescale : x;
}

// The largest float magnitude is also the largest integer: the maximum needs no float compare.
template <bool kScaled>
HVD_SCALAR uint32_t largest_magnitude(const float* x, int64_t count, float prescale) {
  int32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int32_t magnitude = static_cast<int32_t>(finite_magnitude(scaled<kScaled>(x[i], prescale)));
    largest = magnitude > largest ? magnitude : largest;
  }
  return static_cast<uint32_t>(largest);
}

template <bool kScaled>
HVD_SCALAR void encode_block(const float* x, int64_t count, float prescale, uint8_t scale, uint8_t* codes) {
  const float inverse = e8m0_inverse(scale);
  for (int64_t i = 0; i < count; ++i) codes[i] = e4m3_from_float(scaled<kScaled>(x[i], prescale) * inverse);
}

// Scales of some blocks first, then their codes: no block waits for its own maximum, and the elements are still in the
// level-1 cache when they are read again. `kBlock` 0 stands for a block size known at run time; a constant one lets the
// compiler unroll.
template <bool kScaled, int64_t kBlock>
HVD_SCALAR void encode_run(const float* __restrict x, int64_t count, int64_t any_block, float prescale,
                           uint8_t* __restrict run) {
  constexpr int64_t kTogether = 4096;  // elements
  constexpr int64_t kAhead = 2048;     // the hardware's prefetcher alone left 15 % on the table
  const int64_t block = kBlock != 0 ? kBlock : any_block;
  const int64_t blocks = (count + block - 1) / block;
  const int64_t full = count / block;
  uint8_t* codes = run + blocks;
  for (int64_t first = 0; first < full; first += kTogether / block) {
    const int64_t last = first + kTogether / block < full ? first + kTogether / block : full;
    for (int64_t b = first; b < last; ++b) {
      for (int64_t i = 0; i < block; i += 16) __builtin_prefetch(x + b * block + i + kAhead);
      run[b] = e4m3_block_scale(largest_magnitude<kScaled>(x + b * block, block, prescale));
    }
    for (int64_t b = first; b < last; ++b) {
      encode_block<kScaled>(x + b * block, block, prescale, run[b], codes + b * block);
    }
  }
  if (full < blocks) {
    const float* rest = x + full * block;
    const int64_t length = count - full * block;
    run[full] = e4m3_block_scale(largest_magnitude<kScaled>(rest, length, prescale));
    encode_block<kScaled>(rest, length, prescale, run[full], codes + full * block);
  }
}

template <bool kScaled>
void encode_scaled(const float* x, int64_t count, int64_t block, float prescale, uint8_t* run) {
  if (block == 128) {
    encode_run<kScaled, 128>(x, count, block, prescale, run);
  } else if (block == 32) {
    encode_run<kScaled, 32>(x, count, block, prescale, run);
  } else {
    encode_run<kScaled, 0>(x, count, block, prescale, run);
  }
}

void encode(const float* x, int64_t count, int64_t block, float prescale, uint8_t* run) {
  if (prescale == 1.0f) {
    encode_scaled<false>(x, count, block, prescale, run);
  } else {
    encode_scaled<true>(x, count, block, prescale, run);
  }
}

template <bool kAdd>
HVD_SCALAR void decode_block(const uint8_t* codes, int64_t count, uint8_t scale_byte, float* y) {
  const float scale = e8m0_value(scale_byte);
  for (int64_t i = 0; i < count; ++i) {
    const float value = float_from_e4m3(codes[i]) * scale;
    y[i] = kAdd ? y[i] + value : value;
  }
}

template <bool kAdd>
void decode_run(const uint8_t* __restrict run, int64_t count, int64_t block, float* __restrict y) {
  const int64_t blocks = (count + block - 1) / block;
  const uint8_t* codes = run + blocks;
  const int64_t full = count / block;
  for (int64_t b = 0; b < full; ++b) {
    if (block == 128) {
      decode_block<kAdd>(codes + b * 128, 128, run[b], y + b * 128);
    } else {
      decode_block<kAdd>(codes + b * block, block, run[b], y + b * block);
    }
  }
  if (full < blocks) decode_block<kAdd>(codes + full * block, count - full * block, run[full], y + full * block);
}

}  // namespace

extern const Bit8Kernels bit8_kernels;
const Bit8Kernels bit8_kernels = {encode, decode_run<false>, decode_run<true>};

}  // namespace hvd::HVD_SIMD_NAMESPACE
