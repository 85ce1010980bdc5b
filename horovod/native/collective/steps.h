// How tensors are divided: who owns which slice, and what is done in which step.
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

// Each of several parties has a slice of every tensor. Slice `part` of `parts` of every tensor: who owns an element depends on
// its tensor and the number of ranks alone, and not on what else is reduced with it.
std::vector<BucketTensor> slice_of(std::span<const BucketTensor> tensors, const BucketReduction& reduction, int part,
                                   int parts);

constexpr int kNoPart = -1;

// Takes residuals where the tensors are, as Feedback::claim() and claim_on() do.
using Claim = std::function<ClaimedResiduals(Feedback& of, Stage stage, int64_t begin, int64_t count)>;
ClaimedResiduals claim_on_cpu(Feedback& of, Stage stage, int64_t begin, int64_t count);

// `parts` buckets, the i-th with slice i of every tensor.
//
// Claims feedback for what encodes: the tensors are all that this rank encodes as its contribution (kSent), and part
// `own` is what it encodes as results (kResult), kNoPart if it does not. A residual that is there already stays. So, with n
// ranks, to gather is slices_of(tensors, reduction, 1, kNoPart), to scatter slices_of(tensors, reduction, n, rank), and
// across hosts a local rank passes slice_of(sums of its host, reduction, local_rank, local_size).
std::vector<Layout> slices_of(std::span<const BucketTensor> tensors, const BucketReduction& reduction, int parts, int own,
                              const Claim& claim);

// ---- steps ----------------------------------------------------------------------------------------------------------

// Buckets that are reduced together step by step: a step has a range of each.
//
//   gather   one bucket; what arrives in a step is the contribution of each of n parties
//   scatter  a bucket for each of n parties, its owner; what arrives is the result of each
//
// Belongs to one thread.

// So many elements are about `message_bytes` of message; a multiple of kRun.
int64_t elements_of(int64_t message_bytes, const BucketReduction& reduction);

class Steps {
 public:
  static constexpr int kNobody = -1;

  // Steps of about `elements` of each bucket: one, to which each party contributes, or one of each party.
  Steps(std::vector<Layout> buckets, int parties, bool gather, int64_t elements);

  // Of other buckets, cut alike.
  Steps like(std::vector<Layout> buckets) const { return Steps(std::move(buckets), parties_, gather_, elements_); }

  int parties() const { return parties_; }
  bool gather() const { return gather_; }
  size_t buckets() const { return buckets_.size(); }
  const Layout& bucket(size_t i) const { return buckets_[i]; }

  uint32_t count() const { return count_; }
  // Empty past the end.
  Range range(uint32_t step, size_t bucket) const {
    const Layout& of = buckets_[bucket];
    return {of.cut(step * elements_), of.cut((step + 1) * elements_)};
  }
  // Elements of a step, over all buckets.
  int64_t elements(uint32_t step) const;
  // Of a party's message.
  size_t bytes(uint32_t step, int party) const {
    const size_t bucket = gather_ ? 0 : static_cast<size_t>(party);
    return static_cast<size_t>(buckets_[bucket].message_bytes(range(step, bucket)));
  }
  // In memory, a step's messages lie one after the other, each at a multiple of 64 bytes: where a party's does.
  size_t offset(uint32_t step, int party) const;
  // All of them, by party, where the first lies at `messages`.
  std::vector<const std::byte*> each(uint32_t step, const std::byte* messages) const;
  // Of all parties' messages in the largest step, and of the largest message.
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

// What is done to every step, and how many steps after the first thing that is.
struct PipelineStage {
  uint32_t lag;
  std::function<void(uint32_t step)> run;
};

// Every rank carries out the same stages in the same order: turn by turn, and in a turn as they are listed, stage X of step
// (turn - lag of X). A stage may thus wait for whatever stands before it in this order on another rank.
void run_pipeline(uint32_t steps, const std::vector<PipelineStage>& stages);

}  // namespace hvd
