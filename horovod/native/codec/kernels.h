// The loops of all codecs, one table per instruction set.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "codec/format_list.h"
#include "codec/random_bits.h"

namespace hvd {

enum class SimdLevel;

inline constexpr int64_t kDefaultBlock = 128;
inline constexpr int64_t kSmallestBlock = 32;
inline constexpr int64_t kLargestBlock = 1024;

// The parameters of a codec that its loops need.
struct BlockShape {
  int64_t block;
  uint64_t seed;
  const uint32_t* signs;  // of a rotation: 0 or the sign bit for each element of a block
};

// Encoded elements of two ranks, as many of each.
struct TwoRuns {
  const uint8_t* first;
  const uint8_t* second;
};

// Encoding returns how many finite values saturated.
struct RunKernels {
  int64_t (*encode)(const float* source, int64_t count, const BlockShape& shape, float prescale, Draw draw, uint8_t* run);
  void (*decode)(const uint8_t* run, int64_t count, const BlockShape& shape, float* destination);
  void (*decode_add)(const uint8_t* run, int64_t count, const BlockShape& shape, float* accumulator);
  void (*decode_two)(const TwoRuns& runs, int64_t count, const BlockShape& shape, float factor, float* destination);
};

// Indexed by whether rounding is stochastic.
struct RoundingKernels {
  RunKernels of[2];
};

// Floating-point tensors of any dtype to and from float32, rounding to nearest even as IEEE 754 does.
struct ConvertKernels {
  void (*to_float)(DType dtype, const void* source, int64_t count, float* destination);
  void (*from_float)(DType dtype, const float* source, int64_t count, void* destination);
};

struct CodecKernels {
  const RoundingKernels* sixteen_bit;  // each in the order of its rows in format_list.h
  const RoundingKernels* plain;
  const RoundingKernels* rotated;
  const ConvertKernels* convert;

  const RunKernels& of(Coding coding, bool stochastic) const;
};

const CodecKernels& codec_kernels(SimdLevel level);

}  // namespace hvd
