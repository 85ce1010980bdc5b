// The loops behind the codecs, one table per instruction set.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/simd.h"

namespace hvd {

struct Bit8Kernels {
  void (*encode)(const float* source, int64_t count, int64_t block, float prescale, uint8_t* run);
  void (*decode)(const uint8_t* run, int64_t count, int64_t block, float* destination);
  void (*decode_add)(const uint8_t* run, int64_t count, int64_t block, float* accumulator);
};

struct Bit16Kernels {
  int64_t (*encode)(const float* source, int64_t count, float prescale, uint8_t* run);
  void (*decode)(const uint8_t* run, int64_t count, float* destination);
  void (*decode_add)(const uint8_t* run, int64_t count, float* accumulator);
};

// Floating-point tensors of any dtype to and from float32, rounding to nearest even as IEEE 754 does.
struct ConvertKernels {
  void (*to_float)(DType dtype, const void* source, int64_t count, float* destination);
  void (*from_float)(DType dtype, const float* source, int64_t count, void* destination);
};

struct CodecKernels {
  const Bit8Kernels* bit8;
  const Bit16Kernels* bit16;
  const ConvertKernels* convert;
};

const CodecKernels& codec_kernels(SimdLevel level);

}  // namespace hvd
