// The slow twins of the formats with blocks: one element at a time, straight from the definitions in minifloat.h,
// integers.h, rotation.h and random_bits.h.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "codec/integers.h"
#include "codec/kernels.h"
#include "codec/minifloat.h"
#include "codec/random_bits.h"
#include "codec/rotation.h"

namespace hvd::scalar {
namespace {

// A block of a run on its way to codes: elements as they are after the prescale factor, and where the bytes go.
struct Block {
  std::vector<float> x;
  int64_t begin;  // index of its first element in the run
  const BlockShape& shape;
  Draw draw;
  uint8_t* scale;
  uint8_t* codes;

  uint32_t random(size_t i) const { return random_number(shape.seed, draw.key, static_cast<uint64_t>(draw.first + begin) + i); }
};

// A block of codes on its way to elements.
struct CodedBlock {
  const uint8_t* scale;
  const uint8_t* codes;
  size_t count;
  const BlockShape& shape;
};

float load_float(const uint8_t* at) {
  float value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

void store_float(float value, uint8_t* at) { std::memcpy(at, &value, sizeof value); }

uint32_t magnitude_of(float value) { return bits_of(value) & ~kSignBit; }

uint32_t largest_magnitude(const std::vector<float>& x) {
  uint32_t largest = 0;
  for (const float value : x) largest = std::max(largest, magnitude_of(value));
  return largest;
}

uint32_t largest_finite_magnitude(const std::vector<float>& x) {
  uint32_t largest = 0;
  for (const float value : x) largest = std::max(largest, finite_magnitude(value));
  return largest;
}

// ---- bit8 -----------------------------------------------------------------------------------------------------------

template <class Minifloat>
struct Bit8 {
  static constexpr int64_t kScaleBytes = 1;
  static constexpr int64_t kCodesPerByte = 1;

  template <bool kStochastic>
  static void encode(const Block& block) {
    *block.scale = Minifloat::scale(largest_finite_magnitude(block.x));
    for (size_t i = 0; i < block.x.size(); ++i) {
      const float value = block.x[i] * e8m0_inverse(*block.scale);
      block.codes[i] = kStochastic ? Minifloat::stochastic(value, block.random(i)) : Minifloat::nearest(value);
    }
  }
  static std::vector<float> decode(const CodedBlock& block) {
    std::vector<float> y(block.count);
    for (size_t i = 0; i < y.size(); ++i) y[i] = Minifloat::value(block.codes[i]) * e8m0_value(*block.scale);
    return y;
  }
};

// ---- int8 -----------------------------------------------------------------------------------------------------------

struct Int8Blocks {
  static constexpr int64_t kScaleBytes = 4;
  static constexpr int64_t kCodesPerByte = 1;

  template <bool kStochastic>
  static void encode(const Block& block) {
    const float scale = Int8::scale(largest_finite_magnitude(block.x));
    const float inverse = 1.0f / scale;
    store_float(scale, block.scale);
    for (size_t i = 0; i < block.x.size(); ++i) {
      const float quotient = block.x[i] * inverse;
      block.codes[i] = int8_code(quotient, kStochastic ? Int8::stochastic(quotient, block.random(i)) : Int8::nearest(quotient));
    }
  }
  static std::vector<float> decode(const CodedBlock& block) {
    std::vector<float> y(block.count);
    for (size_t i = 0; i < y.size(); ++i) y[i] = int8_value(block.codes[i], load_float(block.scale));
    return y;
  }
};

// ---- int4 -----------------------------------------------------------------------------------------------------------

// An even element's code is in the lower bits of its byte, and written first.
void store_nibble(uint8_t* pairs, size_t i, uint8_t code) {
  pairs[i / 2] = i % 2 == 0 ? code : static_cast<uint8_t>(pairs[i / 2] | code << 4);
}

uint8_t load_nibble(const uint8_t* pairs, size_t i) {
  return static_cast<uint8_t>(i % 2 == 0 ? pairs[i / 2] & 15 : pairs[i / 2] >> 4);
}

template <bool kStochastic>
uint8_t code_of(const Block& block, size_t i, float quotient) {
  return int4_code(quotient, kStochastic ? Int4::stochastic(quotient, block.random(i)) : Int4::nearest(quotient));
}

// What marks a block with a non-finite element. Returns whether there is one.
bool is_spoilt(const Block& block) {
  if (largest_magnitude(block.x) < kInfinity) return false;
  store_float(float_of(kQuietNaN), block.scale);
  std::fill_n(block.codes, (block.x.size() + 1) / 2, uint8_t{0});
  return true;
}

struct PlainInt4 {
  static constexpr int64_t kScaleBytes = 4;
  static constexpr int64_t kCodesPerByte = 2;

  template <bool kStochastic>
  static void encode(const Block& block) {
    if (is_spoilt(block)) return;
    const float scale = Int4::scale(largest_magnitude(block.x));
    store_float(scale, block.scale);
    for (size_t i = 0; i < block.x.size(); ++i) {
      store_nibble(block.codes, i, code_of<kStochastic>(block, i, block.x[i] * (1.0f / scale)));
    }
  }
  static std::vector<float> decode(const CodedBlock& block) {
    std::vector<float> y(block.count);
    for (size_t i = 0; i < y.size(); ++i) {
      y[i] = int4_value(load_nibble(block.codes, i)) * load_float(block.scale);
    }
    return y;
  }
};

std::vector<float> transformed(std::vector<float> x) {
  std::vector<float> next(x.size());
  const auto n = static_cast<int64_t>(x.size());
  for (int64_t distance = n / 2; distance > 0; distance /= 2) {
    rotation_stage(x.data(), next.data(), n);
    x.swap(next);
  }
  return x;
}

float step_of(const std::vector<float>& y) { return float_of(largest_magnitude(y)) / 7.0f; }

float lloyd_step_of(const std::vector<float>& t) {
  float lanes[16] = {};
  for (size_t i = 0; i < t.size(); ++i) lanes[i % 16] += t[i] * t[i];
  return std::sqrt(sum_of_lanes(lanes));
}

template <bool kLloyd>
struct RotatedInt4 : PlainInt4 {
  template <bool kStochastic>
  static void encode(const Block& block) {
    const size_t n = block.x.size();
    if (n < static_cast<size_t>(block.shape.block)) return PlainInt4::encode<kStochastic>(block);
    if (is_spoilt(block)) return;
    const uint32_t largest = largest_magnitude(block.x);
    const RotationScale rotation = rotation_scale(largest, static_cast<int64_t>(n));
    std::vector<float> t(n);
    for (size_t i = 0; i < n; ++i) t[i] = float_of(bits_of(block.x[i]) ^ block.shape.signs[i]) * rotation.before;
    const std::vector<float> y = transformed(t);
    const float scale = rotated_block_scale(kLloyd ? lloyd_step_of(t) : step_of(y), rotation);
    const float inverse = 1.0f / (scale * rotation.back);
    store_float(largest == 0 ? 0.0f : scale, block.scale);
    for (size_t i = 0; i < n; ++i) {
      const float quotient = y[i] * inverse;
      store_nibble(block.codes, i, kLloyd ? lloyd_code(quotient) : code_of<kStochastic>(block, i, quotient));
    }
  }
  static std::vector<float> decode(const CodedBlock& block) {
    if (block.count < static_cast<size_t>(block.shape.block)) return PlainInt4::decode(block);
    std::vector<float> y(block.count);
    for (size_t i = 0; i < y.size(); ++i) {
      const uint8_t code = load_nibble(block.codes, i);
      y[i] = kLloyd ? lloyd_value(code) : int4_value(code);
    }
    y = transformed(y);
    for (size_t i = 0; i < y.size(); ++i) {
      y[i] = float_of(bits_of(clamped(y[i] * load_float(block.scale))) ^ block.shape.signs[i]);
    }
    return y;
  }
};

// ---- runs -----------------------------------------------------------------------------------------------------------

template <class Format, bool kStochastic>
void encode(const float* x, int64_t count, const BlockShape& shape, float prescale, Draw draw, uint8_t* run) {
  const int64_t blocks = (count + shape.block - 1) / shape.block;
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t begin = b * shape.block;
    const int64_t end = std::min(count, begin + shape.block);
    Block block{{x + begin, x + end},
                begin,
                shape,
                draw,
                run + b * Format::kScaleBytes,
                run + blocks * Format::kScaleBytes + begin / Format::kCodesPerByte};
    for (float& value : block.x) value *= prescale;
    Format::template encode<kStochastic>(block);
  }
}

template <class Format, bool kAdd>
void decode(const uint8_t* run, int64_t count, const BlockShape& shape, float* y) {
  const int64_t blocks = (count + shape.block - 1) / shape.block;
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t begin = b * shape.block;
    const int64_t end = std::min(count, begin + shape.block);
    const std::vector<float> values =
        Format::decode({run + b * Format::kScaleBytes, run + blocks * Format::kScaleBytes + begin / Format::kCodesPerByte,
                        static_cast<size_t>(end - begin), shape});
    for (int64_t i = begin; i < end; ++i) {
      const float value = values[static_cast<size_t>(i - begin)];
      y[i] = kAdd ? y[i] + value : value;
    }
  }
}

template <class Format>
void decode_two(const TwoRuns& runs, int64_t count, const BlockShape& shape, float factor, float* y) {
  decode<Format, false>(runs.first, count, shape, y);
  decode<Format, true>(runs.second, count, shape, y);
  for (int64_t i = 0; i < count; ++i) y[i] *= factor;
}

template <class Format, bool kStochastic>
constexpr BlockKernels block_kernels() {
  return {encode<Format, kStochastic>, decode<Format, false>, decode<Format, true>, decode_two<Format>};
}

template <class Format>
constexpr RoundingKernels kernels_of() {
  return {{block_kernels<Format, false>(), block_kernels<Format, true>()}};
}

}  // namespace

extern const RoundingKernels bit8_kernels[kBit8Variants];
extern const RoundingKernels int8_kernels;
extern const RoundingKernels int4_kernels[kInt4Kinds];
extern const BlockKernels lloyd_kernels;
const RoundingKernels bit8_kernels[kBit8Variants] = {kernels_of<Bit8<E4M3>>(), kernels_of<Bit8<E5M2>>(),
                                                     kernels_of<Bit8<E3M4>>()};
const RoundingKernels int8_kernels = kernels_of<Int8Blocks>();
const RoundingKernels int4_kernels[kInt4Kinds] = {kernels_of<PlainInt4>(), kernels_of<RotatedInt4<false>>()};
const BlockKernels lloyd_kernels = block_kernels<RotatedInt4<true>, false>();

}  // namespace hvd::scalar
