// Who owns what: each of several parties has a slice of every tensor.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "collective/layout.h"

namespace hvd {

// Slice `part` of `parts` of every tensor: who owns an element depends on its tensor and the number of ranks alone, and not
// on what else is reduced with it.
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

}  // namespace hvd
