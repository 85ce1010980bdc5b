#include "cuda/kernels/codec_kernels.cuh"
#include "cuda/kernels/plain_blocks.cuh"

namespace hvd {

FormatKernels plain_kernels(int row) {
#define HVD_KERNELS(name, format, variant, Trait) kernels_of<PlainBlocks<Trait>>(),
  const FormatKernels kernels[] = {HVD_FOR_EACH_PLAIN_FORMAT(HVD_KERNELS)};
#undef HVD_KERNELS
  return kernels[row];
}

}  // namespace hvd
