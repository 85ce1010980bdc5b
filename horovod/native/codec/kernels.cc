#include "codec/kernels.h"

#include "base/simd.h"

namespace hvd {

#define HVD_DECLARE_LEVEL(level)                                        \
  namespace level {                                                     \
  extern const RoundingKernels sixteen_bit_kernels[kSixteenBitFormats]; \
  extern const RoundingKernels plain_kernels[kPlainFormats];            \
  extern const RoundingKernels rotated_kernels[kRotatedFormats];        \
  extern const ConvertKernels convert_kernels;                          \
  }
HVD_DECLARE_LEVEL(scalar)
HVD_DECLARE_LEVEL(baseline)
HVD_DECLARE_LEVEL(x86_64_v3)
HVD_DECLARE_LEVEL(x86_64_v4)
#undef HVD_DECLARE_LEVEL

const CodecKernels& codec_kernels(SimdLevel level) {
#define HVD_TABLE(level)                                                                              \
  {                                                                                                   \
    level::sixteen_bit_kernels, level::plain_kernels, level::rotated_kernels, &level::convert_kernels \
  }
  static constexpr CodecKernels kScalar = HVD_TABLE(scalar);
  static constexpr CodecKernels kBaseline = HVD_TABLE(baseline);
#if defined(HVD_HAVE_X86_64_V3)
  static constexpr CodecKernels kV3 = HVD_TABLE(x86_64_v3);
  if (level == SimdLevel::kX86_64_V3) return kV3;
#endif
#if defined(HVD_HAVE_X86_64_V4)
  static constexpr CodecKernels kV4 = HVD_TABLE(x86_64_v4);
  if (level == SimdLevel::kX86_64_V4) return kV4;
#endif
#undef HVD_TABLE
  return level == SimdLevel::kScalar ? kScalar : kBaseline;
}

const RunKernels& CodecKernels::of(Coding coding, bool stochastic) const {
  int row = static_cast<int>(coding) - 1;
  if (row < kSixteenBitFormats) return sixteen_bit[row].of[stochastic];
  row -= kSixteenBitFormats;
  return (row < kPlainFormats ? plain[row] : rotated[row - kPlainFormats]).of[stochastic];
}

}  // namespace hvd
