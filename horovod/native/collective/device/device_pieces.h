// Ranges of a layout (collective/layout.h) as kernels take them: tables of pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collective/device/uploads.h"
#include "collective/layout.h"
#include "device/device_codec.h"

namespace hvd {

inline DeviceCodec codec_of(const BucketReduction& reduction) {
  return reduction.codec ? device_codec_named(reduction.codec->name()) : DeviceCodec{};
}

constexpr size_t padded_for_gpu(size_t bytes) { return (bytes + 255) / 256 * 256; }

// What else there is to a range: which of the residuals and keys a kernel encodes with, and where messages begin.
struct PiecePlace {
  Stage stage = Stage::kSent;
  int64_t message = 0;          // offset of the range's message
  bool is_of_elements = false;  // that message, though there is a codec
  int64_t elements = 0;         // and of what it is made of, where a kernel makes codes of elements of others
};

// The kernel that sums contributions, encoded by `in`, as the reduction says. Codes are of what was prescaled.
DeviceReduction summing(const BucketReduction& reduction, const DeviceCodec& in, std::span<const std::byte* const> messages);

// Adds a range to the table begun last.
void add_pieces(const Layout& layout, Range range, const PiecePlace& place, PieceTables& tables);

}  // namespace hvd
