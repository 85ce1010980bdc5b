// int8: integers from -127 to 127, one float32 scale for each block.
//
//   run   := scale[ceil(count / block)] code[count]
//   scale := float32 little endian, amax / 127
//   code  := int8: element = code * scale; -128 is NaN
#include "codec/block_codec.h"

namespace hvd {

std::shared_ptr<const Codec> make_int8(const CodecSpec& spec) {
  return make_block_codec(spec, {4, 1}, codec_kernels(spec.level).int8->of[spec.stochastic()]);
}

}  // namespace hvd
