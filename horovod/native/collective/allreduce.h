// Allreduce and reduce-scatter of a bucket. An allreduce goes by the route that fits its size, its codec and where the ranks
// are. The routes are drawn in docs/architecture.md; all give every rank the same bits.
#pragma once

#include <vector>

#include "collective/bucket.h"
#include "collective/context.h"
#include "collective/host_level.h"
#include "collective/layout.h"
#include "collective/plan.h"
#include "collective/tensor_memory.h"
#include "collective/wire.h"

namespace hvd {

// What an allreduce is carried out with.
struct Means {
  CollectiveContext& context;
  TensorMemory& memory;
  Wire& wire;
  HostLevel* level = nullptr;  // of hierarchical routes
};

// Reduces tensors of one dtype as if they were one. Returns how many finite values a codec's range cut off here.
int64_t allreduce(CollectiveContext& context, std::span<const BucketTensor> tensors, const BucketReduction& reduction,
                  const Route& route);

// The same of tensors that may be elsewhere; their messages are in memory of the host.
int64_t allreduce_in_host_memory(CollectiveContext& context, std::span<const BucketTensor> tensors,
                                 const BucketReduction& reduction, const Route& route, TensorMemory& memory);

// The facts of a plan: the ranks' places; and with the tensors.
PlanFacts facts_of(const RankGroup& group, int most_carriers);
PlanFacts facts_of(const CollectiveContext& context, std::span<const BucketTensor> tensors, const BucketReduction& reduction);

// The families of routes. Only tensors that are not elsewhere can be gathered.
int64_t allreduce_through_window(const Means& means, std::span<const BucketTensor> tensors, const BucketReduction& reduction,
                                 bool gather);
int64_t allreduce_by_exchange(const Means& means, std::span<const BucketTensor> tensors, const BucketReduction& reduction,
                              bool gather);
int64_t allreduce_by_hierarchy(const Means& means, std::span<const BucketTensor> tensors, const BucketReduction& reduction,
                               bool gather);
// Tensors of the CPU, uncompressed.
int64_t allreduce_around_ring(const Means& means, std::span<const BucketTensor> tensors, const BucketReduction& reduction,
                              bool gather);

// Whether what hosts send each other is scaled already, rather than the sum of all. Halves end at 65504, and an average is not
// to overflow where its terms did not. Feedback goes without, as what it keeps is in the units of flat routes; it makes up for
// what saturates.
bool scales_sums_of_hosts(std::span<const BucketTensor> tensors, const BucketReduction& reduction);

// Every rank gets the reduction of its own slice. `slices[r]` holds what goes to rank r; they have one reduction, and the same
// tensors on every rank. Only the destinations of this rank's own slice are written. With a codec each contribution is
// quantised once, the own one too. Returns how many finite values its range cut off.
int64_t reducescatter(const Means& means, std::vector<Layout> slices);

// Adasum: a sum of gradients in which what two of them have in common counts once.
//
//   adasum(a, b) = (1 - a.b / (2 a.a)) a + (1 - a.b / (2 b.b)) b
//
// of each tensor by itself, and of more than two ranks pairwise: (0,1) (2,3) ..., then the pairs, and so on. Maleki et al.,
// "Scaling Distributed Training with Adaptive Summation", 2020.
//
// By recursive vector halving: the ranks must be a power of two, the dtype floating point. Sums of float16, bfloat16 and
// float32 are made in float32, scalar products in float64. The result has the same bits on every rank.
void adasum(CollectiveContext& context, std::span<const BucketTensor> tensors, const BucketReduction& reduction);

}  // namespace hvd
