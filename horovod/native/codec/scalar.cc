// The slow twins: one element at a time, straight from the definitions in minifloat.h; the formats with blocks are in
// scalar_blocks.cc. Every *_kernels.cc is compared with these byte for byte (test/single/test_codec_native.py).
#include <cstring>

#include "codec/kernels.h"
#include "codec/minifloat.h"

namespace hvd::scalar {
namespace {

int64_t encode_bit16(const float* x, int64_t count, float prescale, uint8_t* run) {
  int64_t saturated = 0;
  for (int64_t i = 0; i < count; ++i) {
    const float value = x[i] * prescale;
    const uint16_t code = saturating_half_from_float(value);
    saturated += half_saturates(value);
    std::memcpy(run + 2 * i, &code, sizeof code);
  }
  return saturated;
}

float decode_bit16_element(const uint8_t* run, int64_t i) {
  uint16_t code;
  std::memcpy(&code, run + 2 * i, sizeof code);
  return float_from_half(code);
}

void decode_bit16(const uint8_t* run, int64_t count, float* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = decode_bit16_element(run, i);
}

void decode_add_bit16(const uint8_t* run, int64_t count, float* y) {
  for (int64_t i = 0; i < count; ++i) y[i] += decode_bit16_element(run, i);
}

void decode_two_bit16(const TwoRuns& runs, int64_t count, float factor, float* y) {
  for (int64_t i = 0; i < count; ++i) {
    y[i] = (decode_bit16_element(runs.first, i) + decode_bit16_element(runs.second, i)) * factor;
  }
}

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

extern const Bit16Kernels bit16_kernels;
extern const ConvertKernels convert_kernels;
const Bit16Kernels bit16_kernels = {encode_bit16, decode_bit16, decode_add_bit16, decode_two_bit16};
const ConvertKernels convert_kernels = {to_float, from_float};

}  // namespace hvd::scalar
