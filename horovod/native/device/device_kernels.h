// What GPUs compute for the core. Each kernel serves a whole bucket in one launch, whatever the number of its tensors, and
// its slow twin is what Bucket (collective/bucket.h) does with the same arguments on the CPU: the bytes are the same.
//
// Messages are those of bucket.h: pieces, in them runs of at most Tiles::kRun elements, in them elements as they are or what
// the codec makes of them. Addresses may have any alignment that their elements have; messages may start at any byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "codec/residual_bound.h"
#include "device/device_codec.h"
#include "device/stream.h"

namespace hvd {

// A stretch of a tensor. Starts at a multiple of kRun elements from where its message piece starts, as a whole piece does.
struct DevicePiece {
  const void* source = nullptr;
  void* destination = nullptr;
  float* residual = nullptr;   // of what is encoded, element by element; null: what is lost is lost
  int64_t count = 0;           // elements
  int64_t message_offset = 0;  // bytes from the address a kernel is given to the first run, which may be before it
  // The same of messages of elements, where reduce() has them on one side and codes on the other.
  int64_t elements_offset = 0;
  int64_t first_run = 0;     // runs of the pieces before it
  uint64_t key = 0;          // of random numbers
  int64_t first_number = 0;  // of the first element
  // Of the residual: ResidualBounds::kSlots of them, each in another role in every turn; null: whatever is finite is kept.
  ResidualBound* bounds = nullptr;
  int64_t turn = 0;
};

// In the GPU's memory, or in pinned memory that it can read. Alive until the kernel is done.
struct PieceTable {
  const DevicePiece* pieces = nullptr;
  int64_t count = 0;  // pieces
  int64_t runs = 0;   // of all of them
};

// What is summed into a piece's destination, into a message, or both.
struct DeviceReduction {
  DType dtype = DType::kFloat32;               // of sources and destinations: float32, float16 or bfloat16
  DeviceCodec in;                              // how the contributions are encoded; Coding::kElements: as they are, in dtype
  DeviceCodec out;                             // and how `result` is
  std::span<const std::byte* const> messages;  // by rank, the order of summation; null stands for the pieces' sources
  double prescale = 1.0;                       // of elements; codes are prescaled already
  double factor = 1.0, divisor = 1.0;          // of the sum, as in Scale
  bool to_destination = false;
  std::byte* result = nullptr;  // with codes, residual and key are of this encoding
};

class DeviceKernels {
 public:
  virtual ~DeviceKernels() = default;

  // Codes of source * prescale (+ residual), into the message. dtype: float32, float16, bfloat16 or float64.
  virtual void encode(Stream stream, const DeviceCodec& codec, DType dtype, PieceTable table, double prescale,
                      std::byte* message) = 0;
  // What the codes stand for, into the destinations.
  virtual void decode(Stream stream, const DeviceCodec& codec, DType dtype, PieceTable table, const std::byte* message) = 0;
  // float32 sums of at most kMostContributions, in order.
  static constexpr size_t kMostContributions = 64;
  virtual void reduce(Stream stream, PieceTable table, const DeviceReduction& reduction) = 0;

  // Any dtype: message = source * prescale, and destination = message * factor / divisor, as ReduceKernels' load and store
  // do it for a running sum of the dtype itself.
  virtual void pack(Stream stream, DType dtype, PieceTable table, double prescale, std::byte* message) = 0;
  virtual void unpack(Stream stream, DType dtype, PieceTable table, double factor, double divisor,
                      const std::byte* message) = 0;

  // How many finite values a codec's range cut off since the last call, of the kernels that are done.
  virtual int64_t take_saturated() = 0;
};

}  // namespace hvd
