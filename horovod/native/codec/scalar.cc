// The slow twins: one element at a time, straight from the definitions that format_list.h lists; the formats with blocks are in
// scalar_blocks.cc. Every *_kernels.cc is compared with these byte for byte (test/single/test_codec_native.py).
#include <cstring>

#include "codec/kernels.h"
#include "codec/minifloat.h"

namespace hvd::scalar {
namespace {

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

}  // namespace

extern const RoundingKernels sixteen_bit_kernels[kSixteenBitFormats];
extern const ConvertKernels convert_kernels;
#define HVD_KERNELS(name, format, variant, Trait) SixteenBitRuns<Trait>::kKernels,
const RoundingKernels sixteen_bit_kernels[kSixteenBitFormats] = {HVD_FOR_EACH_SIXTEEN_BIT_FORMAT(HVD_KERNELS)};
#undef HVD_KERNELS
const ConvertKernels convert_kernels = {to_float, from_float};

}  // namespace hvd::scalar
