// The Average of integers, exact where their sum does not fit: 200 and 200 of uint8 average to 200.
//
// Integers of up to 32 bits are added as int64, which no number of ranks overflows. Of an int64 each rank adds the quotient and
// the remainder of its division by the number of ranks n: the sums of both fit, and n * quotients + remainders is the sum of all.
// That is divided once, truncating towards zero. With a postscale the sum is multiplied in float64, as reduce.h says.
#pragma once

#include <functional>
#include <span>

#include "collective/context.h"
#include "collective/layout.h"
#include "collective/plan.h"

namespace hvd {

// Whether a reduction, made for `ranks` ranks, is one.
bool is_integer_average(ReduceOp asked, DType dtype, int ranks);

// Of tensors in memory of the CPU; of those without destination nothing comes back. The reduction is a Sum with a divisor.
// `on_plan` hears by which route the wide sum is about to be made.
void average_integers(CollectiveContext& context, const PlanRules& rules, std::span<const BucketTensor> tensors,
                      const BucketReduction& reduction, const std::function<void(const Plan&)>& on_plan);

}  // namespace hvd
