// Allreduce and reduce-scatter of a bucket. An allreduce takes the route that suits its size, its codec and the ranks' places.
// docs/architecture.md lists the routes. Every route gives all ranks the same bits.
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

// The parts that a route is built from: see "One text for all tensors" in docs/architecture.md.
struct RouteParts {
  CollectiveContext& context;
  TensorMemory& memory;
  Wire& wire;
  HostLevel* level = nullptr;  // hierarchical routes only
};

// Reduces tensors of one dtype as if they were one. Returns how many finite values a codec's range cut off on this rank.
int64_t allreduce(CollectiveContext& context, std::span<const BucketTensor> tensors, const BucketReduction& reduction,
                  const Route& route);

// The same for tensors that may be on a GPU; messages are in host memory.
int64_t allreduce_in_host_memory(CollectiveContext& context, std::span<const BucketTensor> tensors,
                                 const BucketReduction& reduction, const Route& route, TensorMemory& memory);

// The facts of a plan: the ranks' places alone, or with the tensors.
PlanFacts facts_of(const RankGroup& group, int most_carriers);
PlanFacts facts_of(const CollectiveContext& context, std::span<const BucketTensor> tensors, const BucketReduction& reduction);

// The families of routes. Tensors that are elsewhere (TensorMemory::is_elsewhere()) cannot be gathered.
int64_t allreduce_through_window(const RouteParts& parts, std::span<const BucketTensor> tensors,
                                 const BucketReduction& reduction, bool gather);
int64_t allreduce_by_exchange(const RouteParts& parts, std::span<const BucketTensor> tensors, const BucketReduction& reduction,
                              bool gather);
int64_t allreduce_by_hierarchy(const RouteParts& parts, std::span<const BucketTensor> tensors, const BucketReduction& reduction,
                               bool gather);
// Requires CPU tensors without a codec.
int64_t allreduce_around_ring(const RouteParts& parts, std::span<const BucketTensor> tensors, const BucketReduction& reduction,
                              bool gather);

// Whether a host's sum is scaled before it crosses the network, rather than the sum of all hosts. A float16 is at most 65504,
// and an average must not overflow if its terms did not. Tensors with feedback are not scaled early: their residuals have the
// units of flat routes, and feedback makes up for saturated values.
bool scales_sums_of_hosts(std::span<const BucketTensor> tensors, const BucketReduction& reduction);

// Gives rank r the reduction of `slices[r]`. The slices have one reduction, and the same tensors on every rank. Only this
// rank's destinations are written. With a codec each contribution, including this rank's, is quantised once. Returns as
// allreduce().
int64_t reducescatter(const RouteParts& parts, std::vector<Layout> slices);

// Adasum: a sum of gradients that counts a common component once.
//
//   adasum(a, b) = (1 - a.b / (2 a.a)) a + (1 - a.b / (2 b.b)) b
//
// Each tensor is combined separately, and more than two ranks pairwise: (0,1) (2,3) ..., then the pairs, and so on. Source:
// Maleki et al., "Scaling Distributed Training with Adaptive Summation", 2020.
//
// The algorithm is recursive vector halving, so the number of ranks must be a power of two. The dtype must be floating-point:
// float16, bfloat16 and float32 are summed in float32, and scalar products are float64. All ranks get the same bits.
void adasum(CollectiveContext& context, std::span<const BucketTensor> tensors, const BucketReduction& reduction);

}  // namespace hvd
