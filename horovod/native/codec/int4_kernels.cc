// Blocks of 4-bit codes, plain and rotated, vectorised by the compiler: compiled once per instruction set.
#include "codec/block_loops.h"
#include "codec/integers.h"
#include "codec/rotation.h"

namespace hvd::HVD_SIMD_NAMESPACE {
namespace {

HVD_SCALAR void put_float(float value, uint8_t* at) { reinterpret_cast<UnalignedFloat*>(at)->value = value; }
HVD_SCALAR float get_float(const uint8_t* at) { return reinterpret_cast<const UnalignedFloat*>(at)->value; }

// Codes of the block's first half in the lower bits, of its second half in the upper ones.
template <class Code>
HVD_SCALAR void pack(Code code, int64_t count, uint8_t* pairs) {
  const int64_t half = (count + 1) / 2;
  for (int64_t k = 0; k < count / 2; ++k) pairs[k] = static_cast<uint8_t>((code(k) & 15u) | (code(half + k) & 15u) << 4);
  if (count % 2 != 0) pairs[half - 1] = static_cast<uint8_t>(code(half - 1) & 15u);
}

template <class Use>
HVD_SCALAR void unpack(const uint8_t* pairs, int64_t count, Use use) {
  const int64_t half = (count + 1) / 2;
  for (int64_t k = 0; k < half; ++k) use(k, pairs[k] & 15u);
  for (int64_t k = 0; k < count - half; ++k) use(half + k, static_cast<uint32_t>(pairs[k]) >> 4);
}

template <bool kStochastic>
HVD_SCALAR uint32_t int4_code(float quotient, uint32_t random) {
  return static_cast<uint32_t>(kStochastic ? Int4::stochastic(quotient, random) : Int4::nearest(quotient));
}

struct PlainInt4 {
  static constexpr int64_t kScaleBytes = 4;
  static constexpr int64_t kCodesPerByte = 2;

  // With infinities and NaN: they are to spoil the scale.
  static HVD_SCALAR uint32_t magnitude(float value) { return bits_of(value) & ~kSignBit; }
  static HVD_SCALAR void put_scale(uint32_t largest, uint8_t* at) {
    put_float(largest < kInfinity ? Int4::scale(largest) : float_of(kQuietNaN), at);
  }
  static HVD_SCALAR float get_scale(const uint8_t* at) { return get_float(at); }

  template <bool kStochastic, class Elements>
  static HVD_SCALAR void encode(Elements x, int64_t count, float scale, const uint32_t* random, uint8_t* pairs) {
    if (!is_finite(scale)) {
      for (int64_t k = 0; k < (count + 1) / 2; ++k) pairs[k] = 0;
      return;
    }
    const float inverse = 1.0f / scale;
    pack([=](int64_t i) { return int4_code<kStochastic>(x[i] * inverse, kStochastic ? random[i] : 0u); }, count, pairs);
  }

  template <bool kAdd>
  static HVD_SCALAR void decode(const uint8_t* pairs, int64_t count, float scale, float* y) {
    unpack(pairs, count, [=](int64_t i, uint32_t code) {
      const float value = int4_value(code) * scale;
      y[i] = kAdd ? y[i] + value : value;
    });
  }
};

// ---- rotated blocks -------------------------------------------------------------------------------------------------

struct Workspace {
  alignas(64) float a[kLargestBlock];
  alignas(64) float b[kLargestBlock];
  alignas(64) uint32_t random[kLargestBlock];
};

// The transform of w.a, n a power of two; returns where it lies.
HVD_SCALAR float* transformed(Workspace& w, int64_t n) {
  float* in = w.a;
  float* out = w.b;
  for (int64_t distance = n / 2; distance > 0; distance /= 2) {
    rotation_stage(in, out, n);
    float* const next = in;
    in = out;
    out = next;
  }
  return in;
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

template <bool kStochastic, bool kLloyd>
HVD_SCALAR void encode_rotated(Scaled<true> x, const BlockShape& shape, Workspace& w, uint8_t* scale_at, uint8_t* pairs) {
  const int64_t n = shape.block;
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
  const float* y = transformed(w, n);
  const float scale = rotated_block_scale(kLloyd ? root : largest_of(y, n) / 7.0f, rotation);
  const float inverse = 1.0f / (scale * rotation.back);
  put_float(largest == 0 ? 0.0f : scale, scale_at);
  const uint32_t* random = w.random;
  pack(
      [=](int64_t i) {
        const float quotient = y[i] * inverse;
        return kLloyd ? lloyd_code(quotient) : int4_code<kStochastic>(quotient, kStochastic ? random[i] : 0u);
      },
      n, pairs);
}

template <bool kStochastic, bool kLloyd>
void encode_rotated_run(const float* x, int64_t count, const BlockShape& shape, float prescale, Draw draw,
                        uint8_t* __restrict run) {
  const int64_t blocks = (count + shape.block - 1) / shape.block;
  const int64_t full = count / shape.block;
  uint8_t* pairs = run + blocks * 4;
  Numbers numbers(shape.seed, draw);
  Workspace w;
  for (int64_t b = 0; b < full; ++b) {
    if (kStochastic) numbers.fill(b * shape.block, shape.block, w.random);
    encode_rotated<kStochastic, kLloyd>({x + b * shape.block, prescale}, shape, w, run + 4 * b, pairs + b * shape.block / 2);
  }
  if (full < blocks) {
    const Scaled<true> rest = {x + full * shape.block, prescale};
    const int64_t length = count - full * shape.block;
    if (kStochastic) numbers.fill(full * shape.block, length, w.random);
    PlainInt4::put_scale(largest_magnitude<PlainInt4>(rest, length), run + 4 * full);
    PlainInt4::encode<kStochastic>(rest, length, get_float(run + 4 * full), w.random, pairs + full * shape.block / 2);
  }
}

template <bool kAdd, bool kLloyd>
void decode_rotated_run(const uint8_t* __restrict run, int64_t count, const BlockShape& shape, float* __restrict y) {
  const int64_t n = shape.block;
  const int64_t blocks = (count + n - 1) / n;
  const int64_t full = count / n;
  const uint8_t* pairs = run + blocks * 4;
  const uint32_t* signs = shape.signs;
  Workspace w;
  for (int64_t b = 0; b < full; ++b) {
    const float scale = get_float(run + 4 * b);
    float* const levels = w.a;
    unpack(pairs + b * n / 2, n, [=](int64_t i, uint32_t code) { levels[i] = kLloyd ? lloyd_value(code) : int4_value(code); });
    const float* x = transformed(w, n);
    float* to = y + b * n;
    for (int64_t i = 0; i < n; ++i) {
      const float value = float_of(bits_of(clamped(x[i] * scale)) ^ signs[i]);
      to[i] = kAdd ? to[i] + value : value;
    }
  }
  if (full < blocks) {
    PlainInt4::decode<kAdd>(pairs + full * n / 2, count - full * n, get_float(run + 4 * full), y + full * n);
  }
}

}  // namespace

extern const RoundingKernels int4_kernels[kInt4Kinds];
const RoundingKernels int4_kernels[kInt4Kinds] = {
    kernels_of<PlainInt4>(),
    {{{encode_rotated_run<false, false>, decode_rotated_run<false, false>, decode_rotated_run<true, false>},
      {encode_rotated_run<true, false>, decode_rotated_run<false, false>, decode_rotated_run<true, false>}}}};

extern const BlockKernels lloyd_kernels;
const BlockKernels lloyd_kernels = {encode_rotated_run<false, true>, decode_rotated_run<false, true>,
                                    decode_rotated_run<true, true>};

}  // namespace hvd::HVD_SIMD_NAMESPACE
