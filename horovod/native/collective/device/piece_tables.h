// Tables of pieces on their way to a GPU: through pinned memory, so that nobody waits, and into memory of the GPU, which
// kernels read faster. Used by one thread, for kernels of one stream.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collective/layout.h"
#include "device/device.h"
#include "device/device_kernels.h"
#include "device/stream.h"

namespace hvd {

class Uploads {
 public:
  // `attend` outlives it.
  Uploads(Device& device, Stream stream, const ProgressCallback& attend) : device_(device), stream_(stream), attend_(attend) {}

  // Where kernels enqueued on the stream before the next kSlots uploads find the pieces. Waits only for a copy of kSlots
  // uploads ago, or when more pieces come than ever before.
  const DevicePiece* upload(std::span<const DevicePiece> pieces);

 private:
  static constexpr size_t kSlots = 32;
  struct Slot {
    size_t bytes = 0;
    DeviceMemory pinned, on_gpu;
    Event copied;  // from then on the pinned memory may be written again; that of the GPU is used in the stream's order
  };

  // Constant after construction.
  Device& device_;
  const Stream stream_;
  const ProgressCallback& attend_;

  std::array<Slot, kSlots> slots_;
  size_t next_ = 0;
};

// The tables of one operation, made on the host and uploaded together.
class PieceTables {
 public:
  // Begins a table; its number.
  size_t begin();
  // Adds to the table begun last. The first run follows from the pieces before.
  void add(DevicePiece piece);
  // Once, when all are complete.
  void upload(Uploads& uploads);
  PieceTable operator[](size_t table) const;

 private:
  struct Extent {
    size_t first = 0;
    int64_t count = 0, runs = 0;
  };
  std::vector<DevicePiece> pieces_;
  std::vector<Extent> tables_;
  const DevicePiece* uploaded_ = nullptr;
};

// ---- ranges of a layout as kernels take them: tables of pieces ------------------------------------------------------

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
