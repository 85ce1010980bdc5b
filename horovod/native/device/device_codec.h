// A codec as kernels know it.
#pragma once

#include <cstdint>
#include <string>

#include "codec/format_list.h"

namespace hvd {

struct DeviceCodec {
  Coding coding = Coding::kElements;
  bool is_stochastic = false;
  int32_t block = 1;
  uint64_t seed = 0;

  bool operator==(const DeviceCodec&) const = default;
};

// The codec of that Codec::name(); the empty name is Coding::kElements. Throws InvalidArgument for a name that is none.
DeviceCodec device_codec_named(const std::string& name);

}  // namespace hvd
