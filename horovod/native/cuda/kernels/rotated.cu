#include "cuda/kernels/codec_kernels.cuh"
#include "cuda/kernels/rotated_blocks.cuh"

namespace hvd {

FormatKernels rotated_kernels(int row) {
#define HVD_KERNELS(name, format, variant, Trait) kernels_of<RotatedBlocks<Trait>>(),
  const FormatKernels kernels[] = {HVD_FOR_EACH_ROTATED_FORMAT(HVD_KERNELS)};
#undef HVD_KERNELS
  return kernels[row];
}

}  // namespace hvd
