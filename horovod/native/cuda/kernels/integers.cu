#include "cuda/kernels/codec_kernels.cuh"
#include "cuda/kernels/plain_blocks.cuh"

namespace hvd {

FormatKernels int8_kernels() { return kernels_of<PlainBlocks<Int8Blocks>>(); }
FormatKernels int4_kernels() { return kernels_of<PlainBlocks<Int4Blocks>>(); }

}  // namespace hvd
