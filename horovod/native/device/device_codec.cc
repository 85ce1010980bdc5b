#include "device/device_codec.h"

#include "base/error.h"
#include "codec/codec.h"

namespace hvd {
namespace {

DeviceCodec::Format format_of(const NamedCodec& codec) {
  using Format = DeviceCodec::Format;
  const CodecOptions& options = codec.options;
  if (codec.format == "bit16") return Format::kBit16;
  if (codec.format == "bit8") {
    return options.variant == "e4m3" ? Format::kE4M3 : options.variant == "e5m2" ? Format::kE5M2 : Format::kE3M4;
  }
  if (codec.format == "int8") return Format::kInt8;
  if (codec.format == "int4") {
    return options.levels == "lloyd" ? Format::kLloyd : options.rotation == "hadamard" ? Format::kHadamard : Format::kInt4;
  }
  throw InvalidArgument("GPUs have no kernels for the codec '" + codec.format + "'");
}

}  // namespace

DeviceCodec device_codec_named(const std::string& name) {
  if (name.empty()) return {};
  const NamedCodec codec = parse_codec_name(name);
  return {format_of(codec), codec.options.rounding == "stochastic", static_cast<int32_t>(codec.options.block_size),
          codec.options.seed};
}

}  // namespace hvd
