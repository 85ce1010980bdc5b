// Blocks whose codes are elements times a factor, rounded; vectorised by the compiler: compiled once per instruction set.
#include "codec/block_loops.h"

namespace hvd::HVD_SIMD_NAMESPACE {

extern const RoundingKernels plain_kernels[kPlainFormats];
#define HVD_KERNELS(name, format, variant, Trait) kernels_of<Trait>(),
const RoundingKernels plain_kernels[kPlainFormats] = {HVD_FOR_EACH_PLAIN_FORMAT(HVD_KERNELS)};
#undef HVD_KERNELS

}  // namespace hvd::HVD_SIMD_NAMESPACE
