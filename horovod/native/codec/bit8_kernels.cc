// Blocks of 8-bit minifloat codes, vectorised by the compiler: compiled once per instruction set.
#include "codec/block_loops.h"

namespace hvd::HVD_SIMD_NAMESPACE {
namespace {

template <class Minifloat>
struct Bit8 {
  static constexpr int64_t kScaleBytes = 1;
  static constexpr int64_t kCodesPerByte = 1;

  static HVD_SCALAR uint32_t magnitude(float value) { return finite_magnitude(value); }
  static HVD_SCALAR void put_scale(uint32_t largest, uint8_t* at) { *at = Minifloat::scale(largest); }
  static HVD_SCALAR uint8_t get_scale(const uint8_t* at) { return *at; }

  template <bool kStochastic, class Elements>
  static HVD_SCALAR void encode(Elements x, int64_t count, uint8_t scale, const uint32_t* random, uint8_t* codes) {
    const float inverse = e8m0_inverse(scale);
    for (int64_t i = 0; i < count; ++i) {
      const float value = x[i] * inverse;
      codes[i] = kStochastic ? Minifloat::stochastic(value, random[i]) : Minifloat::nearest(value);
    }
  }

  template <bool kAdd>
  static HVD_SCALAR void decode(const uint8_t* codes, int64_t count, uint8_t scale_byte, float* y) {
    const float scale = e8m0_value(scale_byte);
    for (int64_t i = 0; i < count; ++i) {
      const float value = Minifloat::value(codes[i]) * scale;
      y[i] = kAdd ? y[i] + value : value;
    }
  }
};

}  // namespace

extern const RoundingKernels bit8_kernels[kBit8Variants];
const RoundingKernels bit8_kernels[kBit8Variants] = {
    kernels_of<Bit8<E4M3>>(), kernels_of<Bit8<E5M2>>(), kernels_of<Bit8<E3M4>>()};

}  // namespace hvd::HVD_SIMD_NAMESPACE
