// A bucket: tensors of one dtype and one reduction, reduced together as if they were one.
//
// It is a virtual concatenation: positions 0..count() run through the tensors in order, and no fusion buffer is ever
// filled. A range of positions travels as a message:
//
//   message := piece*      the part of the range in each tensor, in order
//   piece   := run*        at most kRun elements each; cut at multiples of kRun from the piece's first element
//   run     := elements as they lie in memory, or, with a codec, what its encode() makes of them
//
// Ranges begin and end where cut() allows it, so that blocks of a codec neither straddle tensors nor depend on how a
// bucket was cut. Used by one thread; the tensors' memory and feedback belong to the caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "codec/kernels.h"
#include "collective/bucket_tensor.h"

namespace hvd {

class Bucket {
 public:
  static constexpr int64_t kRun = Tiles::kRun;

  // The tiles may be shared by buckets of one thread, and outlive them.
  Bucket(std::vector<BucketTensor> tensors, const BucketReduction& reduction, SimdLevel level, Tiles& tiles);

  int64_t count() const { return starts_.back(); }
  const BucketReduction& reduction() const { return reduction_; }

  // The largest allowed boundary at or before `position`.
  int64_t cut(int64_t position) const;
  // Bytes of a range's message.
  int64_t message_bytes(Range range) const;

  // The parts of a range in each tensor that has some, in the order of the message.
  std::vector<BucketPiece> pieces(Range range) const;

  // Writes this rank's contribution.
  void pack(Range range, std::byte* message);
  // For ranks that contribute together: their data as it is, and the message of its sum, prescaled and scaled. Null stands
  // for this rank's own, read in place.
  void copy(Range range, std::byte* data) const;
  void pack_sum(Range range, std::span<const std::byte* const> data, std::byte* message);
  // The same of what each of them has packed, and so prescaled if there is a codec. Null stands for nobody.
  void pack_sum_of_messages(Range range, std::span<const std::byte* const> messages, std::byte* message);
  // Sums the contributions of all ranks, by rank, and scales the result. A null message stands for this rank's own data,
  // read in place (exact buckets only). The result goes to the destinations, or to `result` as a message, or both; with
  // a codec, the message is what the others will decode.
  void reduce(Range range, std::span<const std::byte* const> messages, bool to_destination, std::byte* result);
  // Writes a result message to the destinations.
  void unpack(Range range, const std::byte* message);
  // A world of one: destination = source * prescale * scale.
  void reduce_alone();

  int64_t saturated() const { return saturated_; }  // finite values that a codec's range cut off so far

 private:
  template <typename F>
  void for_each_run(Range range, F f) const;
  int64_t run_bytes(int64_t count) const;
  const std::byte* source_at(size_t tensor, int64_t offset) const;
  std::byte* destination_at(size_t tensor, int64_t offset) const;
  void accumulate(std::span<const std::byte* const> runs, const std::byte* own, int64_t count, void* sum) const;
  void encode(const float* x, int64_t count, double prescale, Draw draw, const ClaimedResiduals& residual, std::byte* run);
  void encode_source(size_t tensor, int64_t offset, int64_t count, std::byte* run);
  void encode_sum(size_t tensor, int64_t offset, std::span<const std::byte* const> runs, int64_t count, std::byte* run);
  void encode_result(size_t tensor, int64_t offset, int64_t count, std::byte* run);
  void reduce_exact(std::span<const std::byte* const> runs, const std::byte* own, int64_t count, std::byte* out) const;
  void reduce_encoded(std::span<const std::byte* const> runs, int64_t count, std::byte* destination, bool to_tiles);

  // Constant after construction.
  const std::vector<BucketTensor> tensors_;
  const BucketReduction reduction_;
  const ReduceKernels& reduce_;
  const ConvertKernels& convert_;
  const int64_t granule_;        // boundaries lie at multiples of this from a tensor's start
  std::vector<int64_t> starts_;  // position of each tensor, then of the end

  Tiles& tiles_;
  int64_t saturated_ = 0;
};

}  // namespace hvd
