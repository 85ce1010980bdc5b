#include "codec/formats.h"

#include <algorithm>

#include "base/error.h"

namespace hvd {
namespace {

template <class Trait>
constexpr FormatRow row(Coding coding, std::string_view format, std::string_view variant) {
  constexpr bool kRotated = requires { Trait::kLloyd; };
  bool lloyd = false;
  if constexpr (kRotated) lloyd = Trait::kLloyd;
  return {coding, format, variant, Trait::kBits, Trait::kScaleBytes, kRotated, lloyd};
}

#define HVD_ROW(name, format, variant, Trait) row<Trait>(Coding::name, format, variant),
constexpr FormatRow kRows[] = {HVD_FOR_EACH_FORMAT(HVD_ROW)};
#undef HVD_ROW

}  // namespace

std::span<const FormatRow> format_rows() { return kRows; }

const FormatRow& row_of(const NamedCodec& named) {
  const CodecOptions& options = named.options;
  const auto* const found = std::find_if(std::begin(kRows), std::end(kRows), [&](const FormatRow& each) {
    return each.format == named.format && each.variant == options.variant && each.rotated == (options.rotation == "hadamard") &&
           each.lloyd == (options.levels == "lloyd");
  });
  if (found == std::end(kRows)) throw InternalError("no row of format_list.h is " + named.format);
  return *found;
}

}  // namespace hvd
