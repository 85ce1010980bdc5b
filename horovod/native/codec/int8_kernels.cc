// Blocks of 8-bit integers, vectorised by the compiler: compiled once per instruction set.
#include "codec/block_loops.h"
#include "codec/integers.h"

namespace hvd::HVD_SIMD_NAMESPACE {
namespace {

struct Int8Blocks {
  static constexpr int64_t kScaleBytes = 4;
  static constexpr int64_t kCodesPerByte = 1;

  static HVD_SCALAR uint32_t magnitude(float value) { return finite_magnitude(value); }
  static HVD_SCALAR void put_scale(uint32_t largest, uint8_t* at) { put_float(Int8::scale(largest), at); }
  static HVD_SCALAR float inverse(const uint8_t* at) { return 1.0f / get_float(at); }
  static HVD_SCALAR float scale(const uint8_t* at) { return get_float(at); }

  template <bool kStochastic>
  static HVD_SCALAR uint8_t code(float quotient, uint32_t random) {
    return int8_code(quotient, kStochastic ? Int8::stochastic(quotient, random) : Int8::nearest(quotient));
  }
  static HVD_SCALAR float value(uint8_t code, float scale) { return int8_value(code, scale); }
};

}  // namespace

extern const RoundingKernels int8_kernels;
const RoundingKernels int8_kernels = kernels_of<Int8Blocks>();

}  // namespace hvd::HVD_SIMD_NAMESPACE
