#include "cuda/kernels/codec_kernels.cuh"
#include "cuda/kernels/rotated_blocks.cuh"

namespace hvd {

FormatKernels hadamard_kernels() { return kernels_of<RotatedBlocks<false>>(); }
FormatKernels lloyd_kernels() { return kernels_of<RotatedBlocks<true>>(); }

}  // namespace hvd
