// A codec as kernels know it.
#pragma once

#include <cstdint>
#include <string>

namespace hvd {

struct DeviceCodec {
  enum class Format : uint8_t { kElements, kBit16, kE4M3, kE5M2, kE3M4, kInt8, kInt4, kHadamard, kLloyd };
  Format format = Format::kElements;
  bool is_stochastic = false;
  int32_t block = 1;
  uint64_t seed = 0;

  bool operator==(const DeviceCodec&) const = default;
};

// The codec of that Codec::name(); the empty name is Format::kElements. Throws InvalidArgument for a name that is none.
DeviceCodec device_codec_named(const std::string& name);

}  // namespace hvd
