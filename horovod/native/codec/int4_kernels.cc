// Blocks of 4-bit codes, plain and rotated, vectorised by the compiler: compiled once per instruction set.
#include "codec/block_loops.h"
#include "codec/integers.h"
#include "codec/rotation.h"

namespace hvd::HVD_SIMD_NAMESPACE {
namespace {

struct PlainInt4 {
  static constexpr int64_t kScaleBytes = 4;
  static constexpr int64_t kCodesPerByte = 2;

  // With infinities and NaN: they are to spoil the scale.
  static HVD_SCALAR uint32_t magnitude(float value) { return bits_of(value) & ~kSignBit; }
  static HVD_SCALAR void put_scale(uint32_t largest, uint8_t* at) {
    put_float(largest < kInfinity ? Int4::scale(largest) : float_of(kQuietNaN), at);
  }
  static HVD_SCALAR float inverse(const uint8_t* at) { return is_finite(get_float(at)) ? 1.0f / get_float(at) : 0.0f; }
  static HVD_SCALAR float scale(const uint8_t* at) { return get_float(at); }

  template <bool kStochastic>
  static HVD_SCALAR uint8_t code(float quotient, uint32_t random) {
    return int4_code(quotient, kStochastic ? Int4::stochastic(quotient, random) : Int4::nearest(quotient));
  }
  static HVD_SCALAR float value(uint8_t code, float scale) { return int4_value(code) * scale; }
};

// ---- rotated blocks -------------------------------------------------------------------------------------------------

struct Workspace {
  alignas(64) float a[kLargestBlock];
  alignas(64) float b[kLargestBlock];
  alignas(64) uint32_t random[kLargestBlock];
  alignas(64) uint8_t codes[kLargestBlock];
};

// Two stages of the transform in one pass over memory, with the same additions.
HVD_SCALAR void two_rotation_stages(const float* __restrict in, float* __restrict out, int64_t n) {
  for (int64_t i = 0; i < n / 4; ++i) {
    const float even = in[i] + in[i + n / 2];
    const float odd = in[i] - in[i + n / 2];
    const float next_even = in[i + n / 4] + in[i + n / 4 + n / 2];
    const float next_odd = in[i + n / 4] - in[i + n / 4 + n / 2];
    out[4 * i] = even + next_even;
    out[4 * i + 1] = even - next_even;
    out[4 * i + 2] = odd + next_odd;
    out[4 * i + 3] = odd - next_odd;
  }
}

// The transform of w.a, n a power of two; returns where it lies.
HVD_SCALAR float* transformed_inline(Workspace& w, int64_t n) {
  float* in = w.a;
  float* out = w.b;
  for (int64_t left = n; left > 1; left /= 4) {
    if (left > 2) {
      two_rotation_stages(in, out, n);
    } else {
      rotation_stage(in, out, n);
    }
    float* const next = in;
    in = out;
    out = next;
  }
  return in;
}

// A function of its own for sizes known at run time; a constant one is worth code wherever it is used: it stays in registers.
[[gnu::noinline]] float* transformed_any(Workspace& w, int64_t n) { return transformed_inline(w, n); }

template <int64_t kBlock>
HVD_SCALAR float* transformed(Workspace& w, int64_t n) {
  if constexpr (kBlock != 0) return transformed_inline(w, kBlock);
  return transformed_any(w, n);
}

HVD_SCALAR float root_of_sum_of_squares(const float* t, int64_t n) {
  float lanes[16] = {};
  for (int64_t i = 0; i < n; i += 16) {
    for (int64_t j = 0; j < 16; ++j) lanes[j] += t[i + j] * t[i + j];
  }
  return __builtin_sqrtf(sum_of_lanes(lanes));
}

HVD_SCALAR float largest_of(const float* y, int64_t n) {
  int32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int32_t magnitude = static_cast<int32_t>(bits_of(y[i]) & ~kSignBit);
    largest = magnitude > largest ? magnitude : largest;
  }
  return float_of(static_cast<uint32_t>(largest));
}

template <bool kStochastic, bool kLloyd, int64_t kBlock>
HVD_SCALAR void encode_rotated_block(Scaled<true> x, const BlockShape& shape, Workspace& w, uint8_t* scale_at, uint8_t* pairs) {
  const int64_t n = kBlock != 0 ? kBlock : shape.block;
  const uint32_t largest = largest_magnitude<PlainInt4>(x, n);
  if (largest >= kInfinity) {
    put_float(float_of(kQuietNaN), scale_at);
    for (int64_t k = 0; k < n / 2; ++k) pairs[k] = 0;
    return;
  }
  const RotationScale rotation = rotation_scale(largest, n);
  const uint32_t* signs = shape.signs;
  for (int64_t i = 0; i < n; ++i) w.a[i] = float_of(bits_of(x[i]) ^ signs[i]) * rotation.before;
  const float root = kLloyd ? root_of_sum_of_squares(w.a, n) : 0.0f;
  const float* y = transformed<kBlock>(w, n);
  const float scale = rotated_block_scale(kLloyd ? root : largest_of(y, n) / 7.0f, rotation);
  const float inverse = 1.0f / (scale * rotation.back);
  put_float(largest == 0 ? 0.0f : scale, scale_at);
  for (int64_t i = 0; i < n; ++i) {
    const float quotient = y[i] * inverse;
    w.codes[i] = kLloyd ? lloyd_code(quotient) : PlainInt4::code<kStochastic>(quotient, kStochastic ? w.random[i] : 0u);
  }
  pack(w.codes, n, pairs);
}

// A tail shorter than a block is written as plain int4, by way of a run of its own.
using Tail = uint8_t[4 + kLargestBlock / 2];

template <bool kStochastic, bool kLloyd, int64_t kBlock>
void encode_rotated_run(const float* x, int64_t count, const BlockShape& shape, float prescale, Draw draw,
                        uint8_t* __restrict run) {
  const int64_t n = kBlock != 0 ? kBlock : shape.block;
  const int64_t full = count / n;
  const int64_t rest = count - full * n;
  uint8_t* scales = run;
  uint8_t* pairs = run + (full + (rest > 0)) * 4;
  Numbers numbers(shape.seed, draw);
  Workspace w;
  for (int64_t b = 0; b < full; ++b) {
    if (kStochastic) numbers.fill(b * n, n, w.random);
    encode_rotated_block<kStochastic, kLloyd, kBlock>({x + b * n, prescale}, shape, w, scales + 4 * b, pairs + b * n / 2);
  }
  if (rest > 0) {
    Tail tail;
    encode<PlainInt4, kStochastic>(x + full * n, rest, shape, prescale, {draw.key, draw.first + full * n}, tail);
    __builtin_memcpy(scales + 4 * full, tail, 4);
    __builtin_memcpy(pairs + full * n / 2, tail + 4, static_cast<size_t>((rest + 1) / 2));
  }
}

template <bool kAdd, bool kLloyd, int64_t kBlock>
void decode_rotated_run(const uint8_t* __restrict run, int64_t count, const BlockShape& shape, float* __restrict y) {
  const int64_t n = kBlock != 0 ? kBlock : shape.block;
  const int64_t full = count / n;
  const int64_t rest = count - full * n;
  const uint8_t* scales = run;
  const uint8_t* pairs = run + (full + (rest > 0)) * 4;
  const uint32_t* signs = shape.signs;
  Workspace w;
  for (int64_t b = 0; b < full; ++b) {
    const float scale = get_float(scales + 4 * b);
    unpack(pairs + b * n / 2, n, w.codes);
    for (int64_t i = 0; i < n; ++i) w.a[i] = kLloyd ? lloyd_value(w.codes[i]) : int4_value(w.codes[i]);
    const float* x = transformed<kBlock>(w, n);
    float* to = y + b * n;
    for (int64_t i = 0; i < n; ++i) {
      const float value = float_of(bits_of(clamped(x[i] * scale)) ^ signs[i]);
      to[i] = kAdd ? to[i] + value : value;
    }
  }
  if (rest > 0) {
    Tail tail;
    __builtin_memcpy(tail, scales + 4 * full, 4);
    __builtin_memcpy(tail + 4, pairs + full * n / 2, static_cast<size_t>((rest + 1) / 2));
    decode<PlainInt4, kAdd>(tail, rest, shape, y + full * n);
  }
}

template <bool kStochastic, bool kLloyd>
void encode_rotated(const float* x, int64_t count, const BlockShape& shape, float prescale, Draw draw, uint8_t* run) {
  if (shape.block == 128) return encode_rotated_run<kStochastic, kLloyd, 128>(x, count, shape, prescale, draw, run);
  encode_rotated_run<kStochastic, kLloyd, 0>(x, count, shape, prescale, draw, run);
}

template <bool kAdd, bool kLloyd>
void decode_rotated(const uint8_t* run, int64_t count, const BlockShape& shape, float* y) {
  if (shape.block == 128) return decode_rotated_run<kAdd, kLloyd, 128>(run, count, shape, y);
  decode_rotated_run<kAdd, kLloyd, 0>(run, count, shape, y);
}

template <bool kLloyd>
void decode_two_rotated(const TwoRuns& runs, int64_t count, const BlockShape& shape, float factor, float* y) {
  decode_one_by_one<decode_rotated<false, kLloyd>, decode_rotated<true, kLloyd>>(runs, count, shape, factor, y);
}

}  // namespace

extern const RoundingKernels int4_kernels[kInt4Kinds];
const RoundingKernels int4_kernels[kInt4Kinds] = {
    kernels_of<PlainInt4>(),
    {{{encode_rotated<false, false>, decode_rotated<false, false>, decode_rotated<true, false>, decode_two_rotated<false>},
      {encode_rotated<true, false>, decode_rotated<false, false>, decode_rotated<true, false>, decode_two_rotated<false>}}}};

extern const BlockKernels lloyd_kernels;
const BlockKernels lloyd_kernels = {encode_rotated<false, true>, decode_rotated<false, true>, decode_rotated<true, true>,
                                    decode_two_rotated<true>};

}  // namespace hvd::HVD_SIMD_NAMESPACE
