// The CPU's work on a layout (layout.h) whose tensors are in its memory: messages are read and written here, by the thread
// that has the bucket. The tensors' memory and feedback belong to the caller.
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

  // Layout and tiles outlive it; the tiles may be shared by buckets of one thread. A reduction of its own differs from the
  // layout's in how it scales.
  Bucket(const Layout& layout, SimdLevel level, Tiles& tiles) : Bucket(layout, layout.reduction(), level, tiles) {}
  Bucket(const Layout& layout, const BucketReduction& reduction, SimdLevel level, Tiles& tiles);

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

// What the CPU does with the buckets of a group.
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
