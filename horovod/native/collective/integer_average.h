// The exact Average of integers, also if their sum overflows: 200 and 200 of uint8 average to 200.
//
// Integers of up to 32 bits are added as int64. An int64 is divided by the number of ranks n, and quotients and remainders are
// added separately: both sums fit, and n * quotients + remainders is the full sum. That is divided once, truncating towards
// zero; with a postscale it is multiplied in float64, as in reduce.h.
#pragma once

#include <functional>
#include <span>

#include "collective/context.h"
#include "collective/layout.h"
#include "collective/plan.h"

namespace hvd {

// Whether a reduction over `ranks` ranks is such an average.
bool is_integer_average(ReduceOp asked, DType dtype, int ranks);

// For CPU tensors; tensors without destination get no result. The reduction is a Sum with a divisor. `on_plan` gets the plan of
// the int64 sum before it starts.
void average_integers(CollectiveContext& context, const PlanRules& rules, std::span<const BucketTensor> tensors,
                      const BucketReduction& reduction, const std::function<void(const Plan&)>& on_plan);

}  // namespace hvd
