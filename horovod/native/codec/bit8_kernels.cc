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
HVD_SCALAR uint8_t encode_block(const float* x, int64_t count, float prescale, uint8_t* codes) {
  const uint8_t scale = e4m3_block_scale(largest_magnitude<kScaled>(x, count, prescale));
  const float inverse = e8m0_inverse(scale);
  for (int64_t i = 0; i < count; ++i) codes[i] = e4m3_from_float(scaled<kScaled>(x[i], prescale) * inverse);
  return scale;
}

template <bool kScaled>
HVD_SCALAR void encode_run(const float* __restrict x, int64_t count, int64_t block, float prescale,
                           uint8_t* __restrict run) {
  const int64_t blocks = (count + block - 1) / block;
  uint8_t* codes = run + blocks;
  const int64_t full = count / block;
  for (int64_t b = 0; b < full; ++b) {
    const float* source = x + b * block;
    uint8_t* target = codes + b * block;
    // A constant trip count lets the compiler unroll the common cases completely.
    run[b] = block == 128  ? encode_block<kScaled>(source, 128, prescale, target)
             : block == 32 ? encode_block<kScaled>(source, 32, prescale, target)
                           : encode_block<kScaled>(source, block, prescale, target);
  }
  if (full < blocks) {
    run[full] = encode_block<kScaled>(x + full * block, count - full * block, prescale, codes + full * block);
  }
}

void encode(const float* x, int64_t count, int64_t block, float prescale, uint8_t* run) {
  if (prescale == 1.0f) {
    encode_run<false>(x, count, block, prescale, run);
  } else {
    encode_run<true>(x, count, block, prescale, run);
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
