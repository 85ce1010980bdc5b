// The division of tensors into slices (one for each rank) and steps (of a pipeline).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "collective/layout.h"

namespace hvd {

// ---- slices ---------------------------------------------------------------------------------------------------------

// Slice `part` of `parts` of every tensor. An element's owner does not depend on the other tensors.
std::vector<BucketTensor> slice_of(std::span<const BucketTensor> tensors, const BucketReduction& reduction, int part,
                                   int parts);

constexpr int kNoPart = -1;

// Claims residuals in the memory of the tensors: Feedback::claim() or claim_on().
using Claim = std::function<ClaimedResiduals(Feedback& of, Stage stage, int64_t begin, int64_t count)>;
ClaimedResiduals claim_on_cpu(Feedback& of, Stage stage, int64_t begin, int64_t count);

// Returns `parts` buckets, the i-th with slice i of every tensor.
//
// Claims feedback: kSent for all elements, which this rank encodes as its contribution, and kResult for slice `own`, which it
// encodes as a result (kNoPart: none). Earlier claims for kSent stay. Of n ranks, a gather calls slices_of(tensors, reduction,
// 1, kNoPart) and a scatter slices_of(tensors, reduction, n, rank). Between hosts a carrier passes its slice of the host's
// sums, the number of hosts and its host.
std::vector<Layout> slices_of(std::span<const BucketTensor> tensors, const BucketReduction& reduction, int parts, int own,
                              const Claim& claim);

// ---- steps ----------------------------------------------------------------------------------------------------------

// Buckets that are reduced together, step by step. A step has a range of each bucket.
//
//   gather   one bucket; a step receives the contribution of each of n parties
//   scatter  a bucket for each of n parties, its owner; a step receives the result of each
//
// Belongs to one thread.

// The number of elements, a multiple of kRun, whose message has about `message_bytes`.
int64_t elements_of(int64_t message_bytes, const BucketReduction& reduction);

class Steps {
 public:
  static constexpr int kNobody = -1;

  // Steps of about `elements` elements of each bucket. `buckets` has one bucket (gather) or one for each party (scatter).
  Steps(std::vector<Layout> buckets, int parties, bool gather, int64_t elements);

  // Other buckets with the same division.
  Steps like(std::vector<Layout> buckets) const { return Steps(std::move(buckets), parties_, gather_, elements_); }

  int parties() const { return parties_; }
  bool gather() const { return gather_; }
  size_t buckets() const { return buckets_.size(); }
  const Layout& bucket(size_t i) const { return buckets_[i]; }

  uint32_t count() const { return count_; }
  // Empty after the end.
  Range range(uint32_t step, size_t bucket) const {
    const Layout& of = buckets_[bucket];
    return {of.cut(step * elements_), of.cut((step + 1) * elements_)};
  }
  // Elements of a step, over all buckets.
  int64_t elements(uint32_t step) const;
  size_t bytes(uint32_t step, int party) const {
    const size_t bucket = gather_ ? 0 : static_cast<size_t>(party);
    return static_cast<size_t>(buckets_[bucket].message_bytes(range(step, bucket)));
  }
  // The offset of a party's message. The messages of a step lie one after the other, aligned to 64 bytes.
  size_t offset(uint32_t step, int party) const;
  // The addresses of all messages by party, if the first is at `messages`.
  std::vector<const std::byte*> each(uint32_t step, const std::byte* messages) const;
  // Bytes of all messages in the largest step, and of the largest message.
  size_t most_bytes() const { return most_bytes_; }
  size_t largest_message() const { return largest_message_; }

 private:
  // Constant after construction.
  std::vector<Layout> buckets_;
  int parties_;
  bool gather_;
  int64_t elements_;
  uint32_t count_ = 0;
  size_t most_bytes_ = 0;
  size_t largest_message_ = 0;
};

// The most steps of a group.
uint32_t steps_of(std::span<const Steps> groups);

// A stage of a pipeline, and how many turns it runs behind the first.
struct PipelineStage {
  uint32_t lag;
  std::function<void(uint32_t step)> run;
};

// Runs all stages for all steps: in each turn the stages run in their order, stage X on step (turn - lag of X). The order is
// the same on every rank, so a stage may wait for whatever precedes it in this order on another rank.
void run_pipeline(uint32_t steps, const std::vector<PipelineStage>& stages);

}  // namespace hvd
