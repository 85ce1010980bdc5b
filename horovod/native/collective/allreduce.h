// Allreduce of a bucket, by the route that fits its size, its codec and where the ranks are. The routes are drawn in
// docs/architecture.md; all give every rank the same bits.
#pragma once

#include "collective/bucket.h"
#include "collective/context.h"
#include "collective/plan.h"

namespace hvd {

// Reduces tensors of one dtype as if they were one. Returns how many finite values a codec's range cut off.
int64_t allreduce(CollectiveContext& context, std::span<const BucketTensor> tensors, const BucketReduction& reduction,
                  const Route& route);

// What its plan depends on.
PlanFacts facts_of(const RankGroup& group, std::span<const BucketTensor> tensors, const BucketReduction& reduction);

// The families of routes.
int64_t allreduce_through_window(CollectiveContext& context, std::span<const BucketTensor> tensors,
                                 const BucketReduction& reduction, bool gather);
int64_t allreduce_by_exchange(CollectiveContext& context, std::span<const BucketTensor> tensors,
                              const BucketReduction& reduction, bool gather);
int64_t allreduce_by_hierarchy(CollectiveContext& context, std::span<const BucketTensor> tensors,
                               const BucketReduction& reduction, bool gather);
int64_t allreduce_around_ring(CollectiveContext& context, std::span<const BucketTensor> tensors,
                              const BucketReduction& reduction, bool gather);

}  // namespace hvd
