// Uploads tables of pieces to a GPU: through pinned memory, so that no thread waits, into GPU memory, which kernels read
// faster. Used by one thread, for kernels of one stream.
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
  // `attend` must outlive this object.
  Uploads(Device& device, Stream stream, const ProgressCallback& attend) : device_(device), stream_(stream), attend_(attend) {}

  // Returns the pieces in GPU memory, valid for kernels enqueued on the stream before the next kSlots uploads. Waits only for
  // the copy of kSlots uploads ago, or if there are more pieces than before.
  const DevicePiece* upload(std::span<const DevicePiece> pieces);

 private:
  static constexpr size_t kSlots = 32;
  struct Slot {
    size_t bytes = 0;
    DeviceMemory pinned, on_gpu;
    Event copied;  // then the pinned memory may be written again; the GPU memory is reused in the stream's order
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
  // Begins a table, and returns its number.
  size_t begin();
  // Adds a piece to the last table, and computes its first run from the pieces before.
  void add(DevicePiece piece);
  // Call it once, when all tables are complete.
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

// ---- ranges of a layout as tables of pieces -------------------------------------------------------------------------

inline DeviceCodec codec_of(const BucketReduction& reduction) {
  return reduction.codec ? device_codec_named(reduction.codec->name()) : DeviceCodec{};
}

constexpr size_t padded_for_gpu(size_t bytes) { return (bytes + 255) / 256 * 256; }

// Options of a range: the stage whose residuals and keys a kernel encodes with, and the offsets of messages.
struct PiecePlace {
  Stage stage = Stage::kSent;
  int64_t message = 0;          // offset of the range's message
  bool is_of_elements = false;  // whether the message has elements in spite of a codec
  int64_t elements = 0;         // offset of the elements, for kernels that encode elements of other ranks
};

// The kernel's arguments for summing contributions that are encoded by `in`. Codes are prescaled already; elements are not.
DeviceReduction summing(const BucketReduction& reduction, const DeviceCodec& in, std::span<const std::byte* const> messages);

// The messages of a table's pieces: codes, or elements if the reduction has no codec. `prescale` applies to encoded elements.
void write_messages(DeviceKernels& kernels, Stream stream, const BucketReduction& reduction, const PieceTable& table,
                    double prescale, std::byte* messages);
void read_messages(DeviceKernels& kernels, Stream stream, const BucketReduction& reduction, const PieceTable& table,
                   const std::byte* messages);

// Adds a range to the last table.
void add_pieces(const Layout& layout, Range range, const PiecePlace& place, PieceTables& tables);

}  // namespace hvd
