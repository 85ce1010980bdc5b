#include "cuda/kernels/codec_kernels.cuh"
#include "cuda/kernels/halves.cuh"

namespace hvd {

FormatKernels bit16_kernels() { return kernels_of<Halves>(); }

}  // namespace hvd
