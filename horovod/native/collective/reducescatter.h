// Reduce-scatter: every rank gets the reduction of its own slice.
#pragma once

#include <vector>

#include "collective/allreduce.h"
#include "collective/layout.h"

namespace hvd {

// `slices[r]` holds what goes to rank r; they have one reduction, and the same tensors on every rank. Only the
// destinations of this rank's own slice are written. With a codec each contribution is quantised once, the own one too.
// Returns how many finite values its range cut off.
int64_t reducescatter(const Means& means, std::vector<Layout> slices);

}  // namespace hvd
