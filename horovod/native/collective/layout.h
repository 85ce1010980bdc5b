// The tensors of a bucket and their reduction, and the place of each element in a message.
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
  void* destination = nullptr;  // may equal source, and otherwise does not overlap it
  Witness witness;              // of both
  int64_t count = 0;
  int64_t offset = 0;  // of the first element in the whole tensor, which keys and feedback are about

  // A stochastic codec's streams of random numbers: for what this rank contributes, and for results that it owns.
  uint64_t sent_key = 0;
  uint64_t result_key = 0;

  Feedback* feedback = nullptr;  // of the whole tensor; null: what quantisation loses is lost
  // Claimed of it by slices_of(): for each of the count elements what its encoding has lost, or null.
  ClaimedResiduals sent{}, result{};
};

// Throws MemoryGone unless the memory is still there.
void require_memory(const BucketTensor& tensor);
int64_t count_of(std::span<const BucketTensor> tensors);

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t count() const { return end - begin; }
};

// Memory that buckets compute in, small enough for the L1 cache. Nothing in it outlives a call.
struct Tiles {
  static constexpr int64_t kRun = 4096;  // elements whose float32 sums stay in the L1 cache; a multiple of every block
  alignas(64) float floats[kRun];
  alignas(64) std::byte exact[kRun * sizeof(double)];
};

struct BucketReduction {
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  Scale scale;                   // of the result, the divisor of an Average included
  const Codec* codec = nullptr;  // null: elements travel as they are
};

// Elements between two places where a tensor may be cut: a block of the codec, or what a cache line holds.
int64_t granule_of(const BucketReduction& reduction);
// Of Tiles::kRun elements in a message.
int64_t run_bytes(const BucketReduction& reduction);

// Which element of which tensor is where in a message: tensors of one dtype and one reduction, reduced together as if they
// were one. The same for the memory of any device.
//
// It is a virtual concatenation: positions 0..count() run through the tensors in order, and no fusion buffer is ever
// filled. A range of positions travels as a message:
//
//   message := piece*      the part of the range in each tensor, in order
//   piece   := run*        at most kRun elements each; cut at multiples of kRun from the piece's first element
//   run     := elements as they lie in memory, or, with a codec, what its encode() makes of them
//
// Ranges begin and end where cut() allows it, so that blocks of a codec neither straddle tensors nor depend on how the
// concatenation was cut.
class Layout {
 public:
  static constexpr int64_t kRun = Tiles::kRun;

  Layout(std::vector<BucketTensor> tensors, const BucketReduction& reduction);

  int64_t count() const { return starts_.back(); }
  const BucketReduction& reduction() const { return reduction_; }
  const std::vector<BucketTensor>& tensors() const { return tensors_; }

  // The largest allowed boundary at or before `position`.
  int64_t cut(int64_t position) const;
  // Bytes of a range's message, and of a run or whole piece of so many elements.
  int64_t message_bytes(Range range) const;
  int64_t piece_bytes(int64_t count) const;

  // Calls f(tensor, offset in the tensor, count) for the part of a range in each tensor that has some, in message order.
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
  int64_t granule_;              // boundaries lie at multiples of this from a tensor's start
  int64_t run_bytes_;            // of a whole run
  std::vector<int64_t> starts_;  // position of each tensor, then of the end
};

}  // namespace hvd
