#include "collective/reduce.h"

namespace hvd {

#define HVD_DECLARE_LEVEL(level)                   \
  namespace level {                                \
  extern const ReduceKernels reduce_kernels_table; \
  }
HVD_DECLARE_LEVEL(baseline)
HVD_DECLARE_LEVEL(x86_64_v3)
HVD_DECLARE_LEVEL(x86_64_v4)
#undef HVD_DECLARE_LEVEL

const ReduceKernels& reduce_kernels([[maybe_unused]] SimdLevel level) {
#if defined(HVD_HAVE_X86_64_V3)
  if (level == SimdLevel::kX86_64_V3) return x86_64_v3::reduce_kernels_table;
#endif
#if defined(HVD_HAVE_X86_64_V4)
  if (level == SimdLevel::kX86_64_V4) return x86_64_v4::reduce_kernels_table;
#endif
  return baseline::reduce_kernels_table;
}

}  // namespace hvd
