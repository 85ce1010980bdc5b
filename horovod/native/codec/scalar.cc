// The slow references: one element at a time, directly from the definitions in format_list.h, rotation.h and random_bits.h.
// Tests compare every *_kernels.cc with them byte for byte (test/single/codec/test_codec_native.py).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "codec/kernels.h"
#include "codec/random_bits.h"
#include "codec/rotation.h"

namespace hvd::scalar {
namespace {

// ---- 16-bit floats, and tensors -------------------------------------------------------------------------------------

template <class Format>
struct SixteenBitRuns {
  static int64_t encode(const float* x, int64_t count, const BlockShape&, float prescale, Draw, uint8_t* run) {
    int64_t saturated = 0;
    for (int64_t i = 0; i < count; ++i) {
      const float value = x[i] * prescale;
      const uint16_t code = Format::code(value);
      saturated += Format::kSaturates && half_saturates(value);
      std::memcpy(run + 2 * i, &code, sizeof code);
    }
    return saturated;
  }
  static float element(const uint8_t* run, int64_t i) {
    uint16_t code;
    std::memcpy(&code, run + 2 * i, sizeof code);
    return Format::value(code);
  }
  static void decode(const uint8_t* run, int64_t count, const BlockShape&, float* y) {
    for (int64_t i = 0; i < count; ++i) y[i] = element(run, i);
  }
  static void decode_add(const uint8_t* run, int64_t count, const BlockShape&, float* y) {
    for (int64_t i = 0; i < count; ++i) y[i] += element(run, i);
  }
  static void decode_two(const TwoRuns& runs, int64_t count, const BlockShape&, float factor, float* y) {
    for (int64_t i = 0; i < count; ++i) y[i] = (element(runs.first, i) + element(runs.second, i)) * factor;
  }
  static constexpr RoundingKernels kKernels = {{{encode, decode, decode_add, decode_two}}};
};

template <typename T>
T element(const void* source, int64_t i) {
  return static_cast<const T*>(source)[i];
}

void to_float(DType dtype, const void* source, int64_t count, float* y) {
  for (int64_t i = 0; i < count; ++i) {
    if (dtype == DType::kFloat32) y[i] = element<float>(source, i);
    if (dtype == DType::kFloat64) y[i] = static_cast<float>(element<double>(source, i));
    if (dtype == DType::kFloat16) y[i] = float_from_half(element<Float16>(source, i).bits);
    if (dtype == DType::kBFloat16) y[i] = float_from_bfloat16(element<BFloat16>(source, i).bits);
  }
}

void from_float(DType dtype, const float* x, int64_t count, void* destination) {
  for (int64_t i = 0; i < count; ++i) {
    if (dtype == DType::kFloat32) static_cast<float*>(destination)[i] = x[i];
    if (dtype == DType::kFloat64) static_cast<double*>(destination)[i] = x[i];
    if (dtype == DType::kFloat16) static_cast<Float16*>(destination)[i].bits = half_from_float(x[i]);
    if (dtype == DType::kBFloat16) static_cast<BFloat16*>(destination)[i].bits = bfloat16_from_float(x[i]);
  }
}

// ---- blocks ---------------------------------------------------------------------------------------------------------

// A block of a run to encode: elements after the prescale factor, and the addresses of scale and codes.
struct Block {
  std::vector<float> x;
  int64_t begin;  // of its first element in the run
  const BlockShape& shape;
  Draw draw;
  uint8_t* scale;
  uint8_t* codes;

  uint32_t random(size_t i) const { return random_number(shape.seed, draw.key, static_cast<uint64_t>(draw.first + begin) + i); }
};

// A block of codes to decode.
struct CodedBlock {
  const uint8_t* scale;
  const uint8_t* codes;
  size_t count;
  const BlockShape& shape;
};

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

// ---- plain blocks ---------------------------------------------------------------------------------------------------

// Code i starts at bit i * kBits, lower bits first, and may span two bytes. Unused bits must be 0.
template <int kBits>
void store_code(uint8_t* codes, size_t i, uint8_t code) {
  const size_t byte = i * kBits / 8, shift = i * kBits % 8;
  codes[byte] = static_cast<uint8_t>(codes[byte] | code << shift);
  if (shift + kBits > 8) codes[byte + 1] = static_cast<uint8_t>(code >> (8 - shift));
}

template <int kBits>
uint8_t load_code(const uint8_t* codes, size_t i) {
  const size_t byte = i * kBits / 8, shift = i * kBits % 8;
  int code = codes[byte] >> shift;
  if (shift + kBits > 8) code |= codes[byte + 1] << (8 - shift);
  return static_cast<uint8_t>(code & ((1 << kBits) - 1));
}

template <class Format>
uint32_t load_scale(const uint8_t* at) {
  uint32_t scale = 0;
  std::memcpy(&scale, at, Format::kScaleBytes);
  return scale;
}

template <class Format>
void store_scale(uint32_t scale, uint8_t* at) {
  std::memcpy(at, &scale, Format::kScaleBytes);
}

template <class Format>
struct PlainBlocks : Format {
  template <bool kStochastic>
  static void encode(const Block& block) {
    const uint32_t largest = Format::kSkipsNonFinite ? largest_finite_magnitude(block.x) : largest_magnitude(block.x);
    const uint32_t scale = Format::scale(largest);
    store_scale<Format>(scale, block.scale);
    for (size_t i = 0; i < block.x.size(); ++i) {
      const float quotient = block.x[i] * Format::inverse(scale);
      store_code<Format::kBits>(block.codes, i,
                                kStochastic ? Format::stochastic(quotient, block.random(i)) : Format::nearest(quotient));
    }
  }
  static std::vector<float> decode(const CodedBlock& block) {
    std::vector<float> y(block.count);
    const float factor = Format::factor(load_scale<Format>(block.scale));
    for (size_t i = 0; i < y.size(); ++i) y[i] = Format::value(load_code<Format::kBits>(block.codes, i), factor);
    return y;
  }
};

// ---- rotated blocks -------------------------------------------------------------------------------------------------

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

template <class Format>
struct RotatedBlocks : PlainBlocks<Int4Blocks> {
  template <bool kStochastic>
  static void encode(const Block& block) {
    const size_t n = block.x.size();
    const uint32_t largest = largest_magnitude(block.x);
    // A tail is not rotated, nor is a block with a non-finite element, whose scale becomes NaN.
    if (n < static_cast<size_t>(block.shape.block) || largest >= kInfinity) {
      return PlainBlocks<Int4Blocks>::encode<kStochastic>(block);
    }
    const RotationScale rotation = rotation_scale(largest, static_cast<int64_t>(n));
    std::vector<float> t(n);
    for (size_t i = 0; i < n; ++i) t[i] = float_of(bits_of(block.x[i]) ^ block.shape.signs[i]) * rotation.before;
    const std::vector<float> y = transformed(t);
    const float scale = rotated_block_scale(Format::kLloyd ? lloyd_step_of(t) : step_of(y), rotation);
    const float inverse = 1.0f / (scale * rotation.back);
    store_scale<Format>(bits_of(largest == 0 ? 0.0f : scale), block.scale);
    for (size_t i = 0; i < n; ++i) {
      const float quotient = y[i] * inverse;
      store_code<kBits>(block.codes, i,
                        Format::kLloyd ? lloyd_code(quotient)
                        : kStochastic  ? stochastic(quotient, block.random(i))
                                       : nearest(quotient));
    }
  }
  static std::vector<float> decode(const CodedBlock& block) {
    if (block.count < static_cast<size_t>(block.shape.block)) return PlainBlocks<Int4Blocks>::decode(block);
    std::vector<float> y(block.count);
    for (size_t i = 0; i < y.size(); ++i) {
      const uint8_t code = load_code<kBits>(block.codes, i);
      y[i] = Format::kLloyd ? lloyd_value(code) : int4_value(code);
    }
    y = transformed(y);
    const float scale = float_of(load_scale<Format>(block.scale));
    for (size_t i = 0; i < y.size(); ++i) {
      y[i] = float_of(bits_of(clamped(y[i] * scale)) ^ block.shape.signs[i]);
    }
    return y;
  }
};

// ---- runs -----------------------------------------------------------------------------------------------------------

template <class Format, bool kStochastic>
int64_t encode(const float* x, int64_t count, const BlockShape& shape, float prescale, Draw draw, uint8_t* run) {
  const int64_t blocks = (count + shape.block - 1) / shape.block;
  uint8_t* codes = run + blocks * Format::kScaleBytes;
  std::fill_n(codes, (count * Format::kBits + 7) / 8, uint8_t{0});
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t begin = b * shape.block;
    const int64_t end = std::min(count, begin + shape.block);
    Block block{{x + begin, x + end}, begin, shape, draw, run + b * Format::kScaleBytes, codes + begin * Format::kBits / 8};
    for (float& value : block.x) value *= prescale;
    Format::template encode<kStochastic>(block);
  }
  return 0;  // scales are chosen so that nothing saturates
}

template <class Format, bool kAdd>
void decode(const uint8_t* run, int64_t count, const BlockShape& shape, float* y) {
  const int64_t blocks = (count + shape.block - 1) / shape.block;
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t begin = b * shape.block;
    const int64_t end = std::min(count, begin + shape.block);
    const std::vector<float> values =
        Format::decode({run + b * Format::kScaleBytes, run + blocks * Format::kScaleBytes + begin * Format::kBits / 8,
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
constexpr RunKernels run_kernels() {
  return {encode<Format, kStochastic>, decode<Format, false>, decode<Format, true>, decode_two<Format>};
}

template <class Format>
constexpr RoundingKernels kernels_of() {
  return {{run_kernels<Format, false>(), run_kernels<Format, true>()}};
}

}  // namespace

extern const RoundingKernels sixteen_bit_kernels[kSixteenBitFormats];
extern const ConvertKernels convert_kernels;
#define HVD_KERNELS(name, format, variant, Trait) SixteenBitRuns<Trait>::kKernels,
const RoundingKernels sixteen_bit_kernels[kSixteenBitFormats] = {HVD_FOR_EACH_SIXTEEN_BIT_FORMAT(HVD_KERNELS)};
#undef HVD_KERNELS
const ConvertKernels convert_kernels = {to_float, from_float};

extern const RoundingKernels plain_kernels[kPlainFormats];
extern const RoundingKernels rotated_kernels[kRotatedFormats];
#define HVD_KERNELS(name, format, variant, Trait) kernels_of<PlainBlocks<Trait>>(),
const RoundingKernels plain_kernels[kPlainFormats] = {HVD_FOR_EACH_PLAIN_FORMAT(HVD_KERNELS)};
#undef HVD_KERNELS
#define HVD_KERNELS(name, format, variant, Trait) kernels_of<RotatedBlocks<Trait>>(),
const RoundingKernels rotated_kernels[kRotatedFormats] = {HVD_FOR_EACH_ROTATED_FORMAT(HVD_KERNELS)};
#undef HVD_KERNELS

}  // namespace hvd::scalar
