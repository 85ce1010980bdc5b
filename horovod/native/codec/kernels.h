// The loops behind the codecs, one table per instruction set.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "codec/draw.h"

namespace hvd {

enum class SimdLevel;

inline constexpr int64_t kSmallestBlock = 32;
inline constexpr int64_t kLargestBlock = 1024;

// What the loops of a format with blocks have to know about the codec they work for.
struct BlockShape {
  int64_t block;
  uint64_t seed;
  const uint32_t* signs;  // of a rotation: 0 or the sign bit for each element of a block
};

struct BlockKernels {
  void (*encode)(const float* source, int64_t count, const BlockShape& shape, float prescale, Draw draw, uint8_t* run);
  void (*decode)(const uint8_t* run, int64_t count, const BlockShape& shape, float* destination);
  void (*decode_add)(const uint8_t* run, int64_t count, const BlockShape& shape, float* accumulator);
  void (*decode_two)(const TwoRuns& runs, int64_t count, const BlockShape& shape, float factor, float* destination);
};

enum Bit8Variant { kE4M3, kE5M2, kE3M4, kBit8Variants };
enum Int4Kind { kPlain, kHadamard, kInt4Kinds };

// Indexed by whether rounding is stochastic.
struct RoundingKernels {
  BlockKernels of[2];
};

struct Bit16Kernels {
  int64_t (*encode)(const float* source, int64_t count, float prescale, uint8_t* run);
  void (*decode)(const uint8_t* run, int64_t count, float* destination);
  void (*decode_add)(const uint8_t* run, int64_t count, float* accumulator);
  void (*decode_two)(const TwoRuns& runs, int64_t count, float factor, float* destination);
};

// Floating-point tensors of any dtype to and from float32, rounding to nearest even as IEEE 754 does.
struct ConvertKernels {
  void (*to_float)(DType dtype, const void* source, int64_t count, float* destination);
  void (*from_float)(DType dtype, const float* source, int64_t count, void* destination);
};

struct CodecKernels {
  const Bit16Kernels* bit16;
  const RoundingKernels* bit8;  // [kBit8Variants]
  const RoundingKernels* int8;
  const RoundingKernels* int4;  // [kInt4Kinds]
  const BlockKernels* lloyd;
  const ConvertKernels* convert;
};

const CodecKernels& codec_kernels(SimdLevel level);

}  // namespace hvd
