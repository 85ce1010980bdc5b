// A bucket (collective/bucket.h) as kernels take it: ranges of positions become pieces, and messages have the same layout.
//
// Steps cut one or several buckets into ranges, as collective/steps.h does, for messages that GPUs exchange.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collective/bucket_tensor.h"
#include "collective/device/uploads.h"
#include "device/device.h"
#include "device/device_codec.h"

namespace hvd {

inline DeviceCodec codec_of(const BucketReduction& reduction) {
  return reduction.codec ? device_codec_named(reduction.codec->name()) : DeviceCodec{};
}

class DeviceBucket {
 public:
  DeviceBucket(std::vector<BucketTensor> tensors, const BucketReduction& reduction);

  int64_t count() const { return starts_.back(); }
  // The largest allowed boundary at or before `position`.
  int64_t cut(int64_t position) const;
  size_t message_bytes(Range range) const;

  // What else there is to a piece: which of the residuals and keys a kernel encodes with, and where messages begin.
  struct Layout {
    Stage stage = Stage::kSent;
    int64_t message = 0;          // offset of the range's message
    bool is_of_elements = false;  // that message, though there is a codec
    int64_t elements = 0;         // and of what it is made of, where a kernel makes codes of elements of others
  };
  // Adds a range to the table begun last.
  void add_pieces(Range range, const Layout& layout, PieceTables& tables) const;

 private:
  template <typename F>
  void for_each_piece(Range range, F f) const;
  int64_t piece_bytes(int64_t count) const;

  // Constant after construction.
  std::vector<BucketTensor> tensors_;
  int64_t granule_, element_bytes_;
  int64_t run_bytes_;            // of a whole run
  const Codec* codec_;           // null: elements
  std::vector<int64_t> starts_;  // position of each tensor, then of the end
};

// As slices_of() (collective/slices.h): `parts` buckets with a slice of every tensor each, and residuals claimed, on the GPU,
// for what is enqueued on the stream; `attend` is called where that has to wait.
std::vector<DeviceBucket> device_slices_of(std::span<const BucketTensor> tensors, const BucketReduction& reduction, int parts,
                                           int own, Device& device, Stream stream, const Attention& attend);

class DeviceSteps {
 public:
  // One bucket, of which every party has a contribution, or one for each party, its owner. Steps of about `elements` of each.
  DeviceSteps(std::vector<DeviceBucket> buckets, int parties, int64_t elements);

  int parties() const { return parties_; }
  size_t buckets() const { return buckets_.size(); }
  const DeviceBucket& bucket(size_t i) const { return buckets_[i]; }
  size_t count() const { return count_; }
  // Empty past the end.
  Range range(size_t step, size_t bucket) const;
  // Elements of a step, over all buckets.
  int64_t elements(size_t step) const;
  // Of a party's message, and rounded up so that the next begins where addresses are even.
  size_t bytes(size_t step, int party) const;
  size_t padded_bytes(size_t step, int party) const;

 private:
  // Constant after construction.
  std::vector<DeviceBucket> buckets_;
  int parties_;
  int64_t elements_;
  size_t count_ = 0;
};

constexpr size_t padded_for_gpu(size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace hvd
