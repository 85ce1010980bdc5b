// bit8: 8-bit minifloat codes, one power-of-two scale byte (e8m0) for each block.
//
//   run   := scale[ceil(count / block)] code[count]
//   scale := uint8, the block's factor is 2^(scale - 127)
//   code  := uint8, e4m3 (or e5m2, e3m4): element = value(code) * factor
#include "base/error.h"
#include "codec/block_codec.h"

namespace hvd {
namespace {

Bit8Variant variant_of(const std::string& name) {
  if (name == "e4m3") return kE4M3;
  if (name == "e5m2") return kE5M2;
  if (name == "e3m4") return kE3M4;
  throw InvalidArgument("bit8 has no variant '" + name + "'");
}

}  // namespace

std::shared_ptr<const Codec> make_bit8(const CodecSpec& spec) {
  const RoundingKernels& kernels = codec_kernels(spec.level).bit8[variant_of(spec.options.variant)];
  return make_block_codec(spec, {1, 1}, kernels.of[spec.stochastic()]);
}

}  // namespace hvd
