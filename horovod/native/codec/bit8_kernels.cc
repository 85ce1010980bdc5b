// Blocks of 8-bit minifloat codes, vectorised by the compiler: compiled once per instruction set.
#include "codec/block_loops.h"

namespace hvd::HVD_SIMD_NAMESPACE {
namespace {

template <class Of>
struct Bit8 {
  using Minifloat = Of;
  static constexpr int64_t kScaleBytes = 1;
  static constexpr int64_t kCodesPerByte = 1;

  static HVD_SCALAR uint32_t magnitude(float value) { return finite_magnitude(value); }
  static HVD_SCALAR void put_scale(uint32_t largest, uint8_t* at) { *at = Minifloat::scale(largest); }
  static HVD_SCALAR float inverse(const uint8_t* at) { return e8m0_inverse(*at); }
  static HVD_SCALAR float scale(const uint8_t* at) { return e8m0_value(*at); }

  template <bool kStochastic>
  static HVD_SCALAR uint8_t code(float quotient, uint32_t random) {
    return kStochastic ? Minifloat::stochastic(quotient, random) : Minifloat::nearest(quotient);
  }
  static HVD_SCALAR float value(uint8_t code, float scale) { return Minifloat::value(code) * scale; }
};

}  // namespace

extern const RoundingKernels bit8_kernels[kBit8Variants];
const RoundingKernels bit8_kernels[kBit8Variants] = {kernels_of<Bit8<E4M3>>(), kernels_of<Bit8<E5M2>>(),
                                                     kernels_of<Bit8<E3M4>>()};

}  // namespace hvd::HVD_SIMD_NAMESPACE
