#include "codec/codec.h"
#include "device/device_kernels.h"

namespace hvd {

DeviceCodec device_codec_named(const std::string& name) {
  if (name.empty()) return {};
  const NamedCodec codec = parse_codec_name(name);
  return {row_of(codec).coding, codec.options.rounding == "stochastic", static_cast<int32_t>(codec.options.block_size),
          codec.options.seed};
}

}  // namespace hvd
