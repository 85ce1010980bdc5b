// The kernels of plain blocks, whose codes are rounded elements times a factor, and of rotated blocks of 4-bit codes. Compiled
// once per instruction set and vectorised by the compiler.
#include "codec/block_loops.h"
#include "codec/rotation.h"

namespace hvd::HVD_SIMD_NAMESPACE {

extern const RoundingKernels plain_kernels[kPlainFormats];
#define HVD_KERNELS(name, format, variant, Trait) kernels_of<Trait>(),
const RoundingKernels plain_kernels[kPlainFormats] = {HVD_FOR_EACH_PLAIN_FORMAT(HVD_KERNELS)};
#undef HVD_KERNELS

// ---- rotated --------------------------------------------------------------------------------------------------------

namespace {

struct Workspace {
  alignas(64) float a[kLargestBlock];
  alignas(64) float b[kLargestBlock];
  alignas(64) uint32_t random[kLargestBlock];
  alignas(64) uint8_t codes[kLargestBlock];
};

// Two stages of the transform in one pass over memory, with the same additions as rotation_stage().
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

// The transform of w.a, for n a power of two. Returns a pointer to the result.
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

// Not inlined for sizes known at run time. A constant size is worth inlining everywhere: the values stay in registers.
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
  const uint32_t largest = largest_magnitude<false>(x, n);
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
    w.codes[i] = kLloyd        ? lloyd_code(quotient)
                 : kStochastic ? Int4Blocks::stochastic(quotient, w.random[i])
                               : Int4Blocks::nearest(quotient);
  }
  pack_nibbles(w.codes, n, pairs);
}

// A tail shorter than a block is encoded as plain int4 into its own run first.
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
    encode<Int4Blocks, kStochastic>(x + full * n, rest, shape, prescale, {draw.key, draw.first + full * n}, tail);
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
    unpack_nibbles(pairs + b * n / 2, n, w.codes);
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
    decode<Int4Blocks, kAdd>(tail, rest, shape, y + full * n);
  }
}

template <bool kStochastic, bool kLloyd>
int64_t encode_rotated(const float* x, int64_t count, const BlockShape& shape, float prescale, Draw draw, uint8_t* run) {
  if (shape.block == 128) {
    encode_rotated_run<kStochastic, kLloyd, 128>(x, count, shape, prescale, draw, run);
  } else {
    encode_rotated_run<kStochastic, kLloyd, 0>(x, count, shape, prescale, draw, run);
  }
  return 0;  // scales are chosen so that nothing saturates
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

// Lloyd-Max levels support rounding to nearest only.
template <class Format>
constexpr RoundingKernels rotated_kernels_of() {
  constexpr bool kLloyd = Format::kLloyd;
  constexpr RunKernels kNearest = {encode_rotated<false, kLloyd>, decode_rotated<false, kLloyd>, decode_rotated<true, kLloyd>,
                                   decode_two_rotated<kLloyd>};
  if constexpr (kLloyd) return {{kNearest}};
  return {{kNearest, {encode_rotated<true, kLloyd>, kNearest.decode, kNearest.decode_add, kNearest.decode_two}}};
}

}  // namespace

extern const RoundingKernels rotated_kernels[kRotatedFormats];
#define HVD_KERNELS(name, format, variant, Trait) rotated_kernels_of<Trait>(),
const RoundingKernels rotated_kernels[kRotatedFormats] = {HVD_FOR_EACH_ROTATED_FORMAT(HVD_KERNELS)};
#undef HVD_KERNELS

}  // namespace hvd::HVD_SIMD_NAMESPACE
