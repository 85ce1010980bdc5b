// int4: integers from -7 to 7, two to a byte, one float32 scale for each block; a NaN scale marks a block with a
// non-finite element.
//
//   run   := scale[ceil(count / block)] pair[ceil(count / 2)]
//   scale := float32 little endian
//   pair  := uint8: code 2k in the lower bits of byte k, code 2k + 1, or 0 after the last, in the upper ones
//   code  := 4 bits, two's complement: element = code * scale; with Lloyd-Max levels a sign and the index of a level
//
// Rotated (codec/rotation.h), the codes of a full block are those of its Hadamard transform; a tail shorter than the block
// is always written as without rotation.
#include "codec/block_codec.h"

namespace hvd {

std::shared_ptr<const Codec> make_int4(const CodecSpec& spec) {
  const CodecKernels& kernels = codec_kernels(spec.level);
  const bool rotated = spec.options.rotation == "hadamard";
  if (spec.options.levels == "lloyd") return make_block_codec(spec, {4, 2}, *kernels.lloyd, rotated);
  return make_block_codec(spec, {4, 2}, kernels.int4[rotated ? kHadamard : kPlain].of[spec.stochastic()], rotated);
}

}  // namespace hvd
