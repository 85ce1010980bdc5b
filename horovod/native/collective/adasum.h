// Adasum: a sum of gradients in which what two of them have in common counts once.
//
//   adasum(a, b) = (1 - a.b / (2 a.a)) a + (1 - a.b / (2 b.b)) b
//
// of each tensor by itself, and of more than two ranks pairwise: (0,1) (2,3) ..., then the pairs, and so on. Maleki et al.,
// "Scaling Distributed Training with Adaptive Summation", 2020.
#pragma once

#include <span>

#include "collective/bucket.h"
#include "collective/context.h"

namespace hvd {

// By recursive vector halving: the ranks must be a power of two, the dtype floating point. Sums of float16, bfloat16 and
// float32 are made in float32, scalar products in float64. The result has the same bits on every rank.
void adasum(CollectiveContext& context, std::span<const BucketTensor> tensors, const BucketReduction& reduction);

}  // namespace hvd
