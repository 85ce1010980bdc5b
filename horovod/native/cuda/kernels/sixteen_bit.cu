#include "cuda/kernels/codec_kernels.cuh"
#include "cuda/kernels/sixteen_bits.cuh"

namespace hvd {

FormatKernels sixteen_bit_kernels(int row) {
#define HVD_KERNELS(name, format, variant, Trait) kernels_of<SixteenBitCodes<Trait>>(),
  const FormatKernels kernels[] = {HVD_FOR_EACH_SIXTEEN_BIT_FORMAT(HVD_KERNELS)};
#undef HVD_KERNELS
  return kernels[row];
}

}  // namespace hvd
