// The loops that all formats with blocks share: compiled once per instruction set, in a namespace of its own, and so for
// inclusion in *_kernels.cc only. format_list.h says what a `Format` is.
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
