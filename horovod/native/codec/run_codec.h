// The class behind every format: all scales first, then all codes. What differs between the formats is in their rows, and in the loops.
#pragma once

#include <memory>

#include "codec/codec.h"
#include "codec/formats.h"

namespace hvd {

// `named` with every default filled in, whose row is `row`, and what it is called in full.
std::shared_ptr<const Codec> make_run_codec(const FormatRow& row, const NamedCodec& named, const std::string& name,
                                            SimdLevel level);

}  // namespace hvd
