// The class behind every format with blocks: all scales first, then all codes. What differs between the formats is the
// size of scales and codes, and the loops.
#pragma once

#include <memory>

#include "codec/formats.h"
#include "codec/kernels.h"

namespace hvd {

struct BlockFormat {
  int64_t scale_bytes;
  int64_t codes_per_byte;
};

// Where a rotated format takes its signs from, `rotated` is set.
std::shared_ptr<const Codec> make_block_codec(const CodecSpec& spec, BlockFormat format, const BlockKernels& kernels,
                                              bool rotated = false);

}  // namespace hvd
