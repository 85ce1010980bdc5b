// The formats this build knows and the options each has. A codec is one file and one row here.
#pragma once

#include <string_view>

#include "codec/codec.h"

namespace hvd {

// What a row's function is given: checked options, with every default filled in.
struct CodecSpec {
  std::string name;
  CodecOptions options;
  SimdLevel level;

  bool stochastic() const { return options.rounding == "stochastic"; }
};

std::shared_ptr<const Codec> make_bit16(const CodecSpec& spec);
std::shared_ptr<const Codec> make_bit8(const CodecSpec& spec);
std::shared_ptr<const Codec> make_int8(const CodecSpec& spec);
std::shared_ptr<const Codec> make_int4(const CodecSpec& spec);

struct Format {
  std::string_view name;
  std::shared_ptr<const Codec> (*make)(const CodecSpec& spec);
  int64_t default_block;      // 0: no blocks, no scales, and so no stochastic rounding
  std::string_view variants;  // separated by spaces, the default first
  bool has_rotation;
};

inline constexpr Format kFormats[] = {
    {"bit16", make_bit16, 0, "", false},
    {"bit8", make_bit8, 128, "e4m3 e5m2 e3m4", false},
    {"int8", make_int8, 128, "", false},
    {"int4", make_int4, 128, "", true},
};

}  // namespace hvd
