#include "codec/kernels.h"

#include "base/simd.h"

namespace hvd {

#define HVD_DECLARE_LEVEL(level)                            \
  namespace level {                                         \
  extern const Bit16Kernels bit16_kernels;                  \
  extern const RoundingKernels bit8_kernels[kBit8Variants]; \
  extern const RoundingKernels int8_kernels;                \
  extern const RoundingKernels int4_kernels[kInt4Kinds];    \
  extern const BlockKernels lloyd_kernels;                  \
  extern const ConvertKernels convert_kernels;              \
  }
HVD_DECLARE_LEVEL(scalar)
HVD_DECLARE_LEVEL(baseline)
HVD_DECLARE_LEVEL(x86_64_v3)
HVD_DECLARE_LEVEL(x86_64_v4)
#undef HVD_DECLARE_LEVEL

const CodecKernels& codec_kernels(SimdLevel level) {
#define HVD_TABLE(level)                                                                                          \
  {                                                                                                               \
    &level::bit16_kernels, level::bit8_kernels, &level::int8_kernels, level::int4_kernels, &level::lloyd_kernels, \
        &level::convert_kernels                                                                                   \
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

}  // namespace hvd
