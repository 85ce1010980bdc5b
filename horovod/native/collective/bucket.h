// The CPU's work on a layout (layout.h) of CPU tensors: reads and writes messages. Belongs to one thread. The caller owns the
// tensors' memory and feedback.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "codec/kernels.h"
#include "collective/context.h"
#include "collective/steps.h"

namespace hvd {

class Bucket {
 public:
  static constexpr int64_t kRun = Layout::kRun;

  // Layout and tiles must outlive the bucket. Buckets of one thread may share tiles. `reduction` may differ from the layout's
  // only in its scale and prescale.
  Bucket(const Layout& layout, SimdLevel level, Tiles& tiles) : Bucket(layout, layout.reduction(), level, tiles) {}
  Bucket(const Layout& layout, const BucketReduction& reduction, SimdLevel level, Tiles& tiles);

  // Writes this rank's contribution.
  void pack(Range range, std::byte* message);
  // For ranks that contribute together: copy() copies this rank's elements; pack_sum() writes the message of the ranks' sum,
  // prescaled and scaled. A null pointer stands for this rank's elements.
  void copy(Range range, std::byte* data) const;
  void pack_sum(Range range, std::span<const std::byte* const> data, std::byte* message);
  // The same for inputs from pack(), which are prescaled already if there is a codec. With a codec no pointer may be null.
  void pack_sum_of_messages(Range range, std::span<const std::byte* const> messages, std::byte* message);
  // Sums the contributions in rank order and scales the result. A null message (only without a codec) stands for this rank's
  // data. The result goes to the destinations, to `result` as a message, or to both.
  void reduce(Range range, std::span<const std::byte* const> messages, bool to_destination, std::byte* result);
  // Writes a result message to the destinations.
  void unpack(Range range, const std::byte* message);
  // For a world of one: destination = source * prescale * scale.
  void reduce_alone();

  int64_t saturated() const { return saturated_; }  // finite values that a codec's range cut off so far

 private:
  template <typename F>
  void for_each_run(Range range, F f) const;
  const std::byte* source_at(const BucketTensor& tensor, int64_t offset) const;
  std::byte* destination_at(const BucketTensor& tensor, int64_t offset) const;
  void accumulate(std::span<const std::byte* const> runs, const std::byte* own, int64_t count, void* sum) const;
  void encode(const float* x, int64_t count, double prescale, Draw draw, const ClaimedResiduals& residual, std::byte* run);
  void encode_source(const BucketTensor& tensor, int64_t offset, int64_t count, std::byte* run);
  void encode_sum(const BucketTensor& tensor, int64_t offset, std::span<const std::byte* const> runs, int64_t count,
                  std::byte* run);
  void encode_result(const BucketTensor& tensor, int64_t offset, int64_t count, std::byte* run);
  void reduce_exact(std::span<const std::byte* const> runs, const std::byte* own, int64_t count, std::byte* out) const;
  void reduce_encoded(std::span<const std::byte* const> runs, int64_t count, std::byte* destination, bool to_tiles);

  // Constant after construction.
  const Layout& layout_;
  const BucketReduction reduction_;
  const ReduceKernels& reduce_;
  const ConvertKernels& convert_;

  Tiles& tiles_;
  int64_t saturated_ = 0;
};

// One Bucket for each bucket of a group.
class BucketsOf {
 public:
  BucketsOf(const Steps& group, const BucketReduction& reduction, const CollectiveContext& context);

  const Steps& group() const { return group_; }
  Bucket& operator[](size_t i) { return buckets_[i]; }
  int64_t saturated() const;

 private:
  const Steps& group_;
  std::vector<Bucket> buckets_;
};

}  // namespace hvd
