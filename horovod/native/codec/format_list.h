// Every format of this build, one row each. From these rows come the kernels of each instruction set and of GPUs, the slow
// twins they are compared with, the names and options that make_codec() knows, and what horovod._native.codec_formats() tells
// Python: its tests, and the one that holds the table in docs/wire_format.md.
//
//   X(kName, "format", "variant", Trait)
//
// Variants of a format stand together, the default first; a format without any has "". A format's trait is its scalar
// definition, for host and device alike:
//
//   kBits                    of a code, 1 to 8: code i has bits i * kBits and on of the codes' bytes, lower bits first
//   kScaleBytes              1, or 4: of a block's scale, the lower bytes of what scale() gives, little endian
//   kSkipsNonFinite          whether the scale is that of the finite elements; else infinities and NaN count in `largest`
//   scale(largest)           of a block, given its largest magnitude as the bits of a float32
//   inverse(scale)           what elements are multiplied by before they are rounded,
//   factor(scale)            and what codes are given to become elements again
//   nearest(quotient), stochastic(quotient, random)    codes
//   value(code, factor)
//   Minifloat                of formats whose codes are 8-bit minifloats, and no others: block_loops.h
#pragma once

#include <cstdint>

#include "codec/integers.h"
#include "codec/minifloat.h"

// Without blocks: these have kSaturates, code(element) and value(code), and no scales.
#define HVD_FOR_EACH_SIXTEEN_BIT_FORMAT(X) \
  X(kBit16, "bit16", "", Bit16)            \
  X(kFP16, "fp16", "", FP16)               \
  X(kBF16, "bf16", "", BF16)

#define HVD_FOR_EACH_PLAIN_FORMAT(X)     \
  X(kE4M3, "bit8", "e4m3", Bit8<E4M3>)   \
  X(kE5M2, "bit8", "e5m2", Bit8<E5M2>)   \
  X(kE3M4, "bit8", "e3m4", Bit8<E3M4>)   \
  X(kInt8, "int8", "", Int8Blocks)       \
  X(kFloat6, "float6", "", Float6Blocks) \
  X(kInt4, "int4", "", Int4Blocks)

// What a block goes through before it is coded is code of its own: block_kernels.cc, cuda/kernels/rotated_blocks.cuh.
#define HVD_FOR_EACH_ROTATED_FORMAT(X)         \
  X(kHadamard, "int4", "", RotatedInt4<false>) \
  X(kLloyd, "int4", "", RotatedInt4<true>)

#define HVD_FOR_EACH_FORMAT(X)       \
  HVD_FOR_EACH_SIXTEEN_BIT_FORMAT(X) \
  HVD_FOR_EACH_PLAIN_FORMAT(X)       \
  HVD_FOR_EACH_ROTATED_FORMAT(X)

namespace hvd {

// The rows by number; 0 stands for elements as they are.
enum class Coding : uint8_t {
  kElements,
#define HVD_NUMBER(name, ...) name,
  HVD_FOR_EACH_FORMAT(HVD_NUMBER)
#undef HVD_NUMBER
};

#define HVD_COUNT(...) +1
inline constexpr int kSixteenBitFormats = HVD_FOR_EACH_SIXTEEN_BIT_FORMAT(HVD_COUNT);
inline constexpr int kPlainFormats = HVD_FOR_EACH_PLAIN_FORMAT(HVD_COUNT);
inline constexpr int kRotatedFormats = HVD_FOR_EACH_ROTATED_FORMAT(HVD_COUNT);
#undef HVD_COUNT

}  // namespace hvd
