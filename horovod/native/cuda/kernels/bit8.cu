#include "cuda/kernels/codec_kernels.cuh"
#include "cuda/kernels/plain_blocks.cuh"

namespace hvd {

FormatKernels e4m3_kernels() { return kernels_of<PlainBlocks<Bit8<E4M3, 3>>>(); }
FormatKernels e5m2_kernels() { return kernels_of<PlainBlocks<Bit8<E5M2, 2>>>(); }
FormatKernels e3m4_kernels() { return kernels_of<PlainBlocks<Bit8<E3M4, 4>>>(); }

}  // namespace hvd
