// The formats this build knows. A codec is one file and one row here.
#pragma once

#include "codec/codec.h"

namespace hvd {

std::shared_ptr<const Codec> make_bit8(int64_t block_size, SimdLevel level);
std::shared_ptr<const Codec> make_bit16(int64_t block_size, SimdLevel level);

struct Format {
  const char* name;
  std::shared_ptr<const Codec> (*make)(int64_t block_size, SimdLevel level);
};

inline constexpr Format kFormats[] = {
    {"bit16", make_bit16},
    {"bit8", make_bit8},
};

}  // namespace hvd
