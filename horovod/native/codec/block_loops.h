// The loops that all formats with blocks share: compiled once per instruction set, in a namespace of its own, and so for
// inclusion in *_kernels.cc only. A `Format` gives
//
//   kScaleBytes, kCodesPerByte
//   magnitude(element)                     what the block's maximum is taken of, as an integer
//   put_scale(largest, at)                 writes the scale, which may stand at any address
//   inverse(at), scale(at)                 what elements are multiplied by before rounding, and codes after it
//   code<kStochastic>(quotient, random)
//   value(code, scale)
#pragma once

#include "codec/decode_loops.h"
#include "codec/encode_loops.h"

namespace hvd::HVD_SIMD_NAMESPACE {
namespace {

template <class Format>
constexpr RoundingKernels kernels_of() {
  return {{{encode<Format, false>, decode<Format, false>, decode<Format, true>},
           {encode<Format, true>, decode<Format, false>, decode<Format, true>}}};
}

}  // namespace
}  // namespace hvd::HVD_SIMD_NAMESPACE
