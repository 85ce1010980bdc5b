// Allreduce of a bucket, by the route that fits its size, its codec and where the ranks are. The routes are drawn in
// docs/architecture.md; all give every rank the same bits.
#pragma once

#include "collective/bucket.h"
#include "collective/context.h"
#include "collective/plan.h"
#include "collective/tensor_memory.h"

namespace hvd {

// Reduces tensors of one dtype as if they were one. Returns how many finite values a codec's range cut off here.
int64_t allreduce(CollectiveContext& context, std::span<const BucketTensor> tensors, const BucketReduction& reduction,
                  const Route& route);

// What its plan depends on.
PlanFacts facts_of(const RankGroup& group, std::span<const BucketTensor> tensors, const BucketReduction& reduction);

// The families of routes. Only tensors that are here can be gathered.
int64_t allreduce_through_window(CollectiveContext& context, std::span<const BucketTensor> tensors,
                                 const BucketReduction& reduction, bool gather, TensorMemory& memory);
int64_t allreduce_by_exchange(CollectiveContext& context, std::span<const BucketTensor> tensors,
                              const BucketReduction& reduction, bool gather, TensorMemory& memory);
int64_t allreduce_by_hierarchy(CollectiveContext& context, std::span<const BucketTensor> tensors,
                               const BucketReduction& reduction, bool gather, TensorMemory& memory);
// Tensors of the CPU, uncompressed.
int64_t allreduce_around_ring(CollectiveContext& context, std::span<const BucketTensor> tensors,
                              const BucketReduction& reduction, bool gather, TensorMemory& memory);

// Whether what hosts send each other is scaled already, rather than the sum of all. Halves end at 65504, and an average is not to
// overflow where its terms did not. Feedback goes without, as what it keeps is in the units of flat routes; it makes up for
// what saturates.
bool scales_sums_of_hosts(std::span<const BucketTensor> tensors, const BucketReduction& reduction);

}  // namespace hvd
