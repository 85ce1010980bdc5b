// The loops that all formats with blocks share: compiled once per instruction set, in a namespace of its own, and so for
// inclusion in *_kernels.cc only. A `Format` gives
//
//   kScaleBytes, kCodesPerByte
//   magnitude(element)                     what the block's maximum is taken of, as an integer
//   put_scale(largest, at)                 writes the scale, which may stand at any address
//   inverse(at), scale(at)                 what elements are multiplied by before rounding, and codes after it
//   code<kStochastic>(quotient, random)
//   value(code, scale)
//   Minifloat                              of formats whose codes are 8-bit minifloats, and no others: halves.h
#pragma once

#include "codec/decode_two_loops.h"
#include "codec/encode_loops.h"

namespace hvd::HVD_SIMD_NAMESPACE {
namespace {

template <class Format>
constexpr RoundingKernels kernels_of() {
  return {{{encode<Format, false>, decode<Format, false>, decode<Format, true>, decode_two<Format>},
           {encode<Format, true>, decode<Format, false>, decode<Format, true>, decode_two<Format>}}};
}

}  // namespace
}  // namespace hvd::HVD_SIMD_NAMESPACE
