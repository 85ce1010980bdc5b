// The tensors of a bucket, their reduction, and the position of each element in a message.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "base/memory.h"
#include "codec/codec.h"
#include "collective/feedback.h"
#include "collective/reduce.h"

namespace hvd {

struct BucketTensor {
  const void* source = nullptr;
  void* destination = nullptr;  // may equal source, but must not overlap it otherwise
  Witness witness;              // of source and destination
  int64_t count = 0;
  int64_t offset = 0;  // of the first element in the whole tensor; keys and feedback count from there

  // A stochastic codec's streams of random numbers, for this rank's contribution and for the results that it owns.
  uint64_t sent_key = 0;
  uint64_t result_key = 0;

  Feedback* feedback = nullptr;  // of the whole tensor; null: losses are not kept
  // Claimed by slices_of(): the residual of each of the `count` elements, or null.
  ClaimedResiduals sent{}, result{};
};

// Throws InternalError if the tensor's memory is gone.
void require_memory(const BucketTensor& tensor);
int64_t count_of(std::span<const BucketTensor> tensors);

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t count() const { return end - begin; }
};

// Working memory of buckets that fits the L1 cache, used within a call.
struct Tiles {
  static constexpr int64_t kRun = 4096;  // a multiple of every codec's block
  alignas(64) float floats[kRun];
  alignas(64) std::byte exact[kRun * sizeof(double)];
};

struct BucketReduction {
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  Scale scale;                   // of the result, including the divisor of an Average
  const Codec* codec = nullptr;  // null: elements are sent unchanged
};

// Elements between two places at which a tensor may be cut: a codec's block, or a cache line.
int64_t granule_of(const BucketReduction& reduction);
// Message bytes of Tiles::kRun elements.
int64_t run_bytes(const BucketReduction& reduction);

// The position of each element in a message, for any device. The tensors have one dtype and one reduction, and are reduced as
// one.
//
// A layout is a virtual concatenation: positions 0..count() run through the tensors in order, without a fusion buffer. A range
// of positions travels as a message:
//
//   message := piece*      the part of the range in each tensor, in order
//   piece   := run*        at most kRun elements each; cut at multiples of kRun from the piece's first element
//   run     := elements as they lie in memory, or the output of the codec's encode()
//
// Ranges begin and end at boundaries from cut(). So a codec's blocks never straddle tensors, and do not depend on the ranges.
class Layout {
 public:
  static constexpr int64_t kRun = Tiles::kRun;

  Layout(std::vector<BucketTensor> tensors, const BucketReduction& reduction);

  int64_t count() const { return starts_.back(); }
  const BucketReduction& reduction() const { return reduction_; }
  const std::vector<BucketTensor>& tensors() const { return tensors_; }

  // The largest allowed boundary at or before `position`.
  int64_t cut(int64_t position) const;
  // Bytes of a range's message, and of `count` elements of one piece.
  int64_t message_bytes(Range range) const;
  int64_t piece_bytes(int64_t count) const;

  // Calls f(tensor, offset in the tensor, count) for each tensor with elements in the range, in message order.
  template <typename F>
  void for_each_piece(Range range, F f) const {
    if (range.count() <= 0) return;
    const auto after = std::upper_bound(starts_.begin(), starts_.end(), range.begin);
    for (auto i = static_cast<size_t>(after - starts_.begin()) - 1; i < tensors_.size() && starts_[i] < range.end; ++i) {
      const int64_t begin = std::max(range.begin, starts_[i]) - starts_[i];
      const int64_t end = std::min(range.end, starts_[i + 1]) - starts_[i];
      if (begin < end) f(tensors_[i], begin, end - begin);
    }
  }

 private:
  // Constant after construction.
  std::vector<BucketTensor> tensors_;
  BucketReduction reduction_;
  int64_t granule_;              // boundaries are at multiples of this from a tensor's start
  int64_t run_bytes_;            // of a whole run
  std::vector<int64_t> starts_;  // position of each tensor, then of the end
};

// A layout for each list of tensors.
std::vector<Layout> layouts_of(std::vector<std::vector<BucketTensor>> all, const BucketReduction& reduction);

}  // namespace hvd
