#include "codec/codec.h"

#include "base/error.h"
#include "codec/formats.h"

namespace hvd {

std::shared_ptr<const Codec> make_codec(const std::string& format, int64_t block_size, SimdLevel level) {
  std::string known;
  for (const Format& row : kFormats) {
    if (format == row.name) return row.make(block_size, level);
    known += " " + std::string(row.name);
  }
  throw InvalidArgument("there is no codec '" + format + "'; choose one of:" + known);
}

std::shared_ptr<const Codec> codec_named(const std::string& name, SimdLevel level) {
  const size_t slash = name.find('/');
  const int64_t block = slash == std::string::npos ? 0 : std::stoll(name.substr(slash + 1));
  return make_codec(name.substr(0, slash), block, level);
}

}  // namespace hvd
