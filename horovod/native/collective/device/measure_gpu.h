// What moving bytes between GPUs costs in a process set: measured once, and the same on every rank.
#pragma once

#include "collective/device/nccl_routes.h"
#include "collective/plan.h"

namespace hvd {

// Each GPU copies in its memory and exchanges messages with the next of its host; the first of each host does with that of the
// next. Of the ranks' figures the slowest counts. Takes some milliseconds, between hosts at 1 Gbit/s about a tenth of a
// second. Collective.
GpuCosts measure_gpu(const NcclContext& nccl);

}  // namespace hvd
