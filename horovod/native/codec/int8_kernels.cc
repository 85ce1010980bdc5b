// Blocks of 8-bit integers, vectorised by the compiler: compiled once per instruction set.
#include "codec/block_loops.h"
#include "codec/integers.h"

namespace hvd::HVD_SIMD_NAMESPACE {
namespace {

struct Int8Blocks {
  static constexpr int64_t kScaleBytes = 4;
  static constexpr int64_t kCodesPerByte = 1;

  static HVD_SCALAR uint32_t magnitude(float value) { return finite_magnitude(value); }
  static HVD_SCALAR void put_scale(uint32_t largest, uint8_t* at) {
    reinterpret_cast<UnalignedFloat*>(at)->value = Int8::scale(largest);
  }
  static HVD_SCALAR float get_scale(const uint8_t* at) { return reinterpret_cast<const UnalignedFloat*>(at)->value; }

  template <bool kStochastic, class Elements>
  static HVD_SCALAR void encode(Elements x, int64_t count, float scale, const uint32_t* random, uint8_t* codes) {
    const float inverse = 1.0f / scale;
    for (int64_t i = 0; i < count; ++i) {
      const float quotient = x[i] * inverse;
      codes[i] = int8_code(quotient, kStochastic ? Int8::stochastic(quotient, random[i]) : Int8::nearest(quotient));
    }
  }

  template <bool kAdd>
  static HVD_SCALAR void decode(const uint8_t* codes, int64_t count, float scale, float* y) {
    for (int64_t i = 0; i < count; ++i) {
      const float value = int8_value(codes[i], scale);
      y[i] = kAdd ? y[i] + value : value;
    }
  }
};

}  // namespace

extern const RoundingKernels int8_kernels;
const RoundingKernels int8_kernels = kernels_of<Int8Blocks>();

}  // namespace hvd::HVD_SIMD_NAMESPACE
