// Reductions of elements by NCCL's own operations. These functions enqueue work that begins and ends on the workspace's stream.
#pragma once

#include <span>

#include "collective/device/nccl_wire.h"

namespace hvd {

// destination = source * prescale * scale
void allreduce_alone(DeviceWorkspace& workspace, std::span<const BucketTensor> tensors, const BucketReduction& reduction);
// NCCL's own allreduce: elements, in NCCL's order.
void allreduce_by_nccl(const NcclContext& nccl, std::span<const BucketTensor> tensors, const BucketReduction& reduction);

}  // namespace hvd
