// The collectives of GPU tensors over NCCL. All enqueue and return; they begin and end on the workspace's stream.
#pragma once

#include <span>
#include <vector>

#include "collective/bucket_tensor.h"
#include "collective/context.h"
#include "collective/device/device_workspace.h"
#include "device/communicator.h"

namespace hvd {

// What they run with. Belongs to one process set, and to its engine's thread.
struct NcclContext {
  CollectiveContext& context;
  DeviceWorkspace& workspace;
  Communicator& communicator;  // on the workspace's wire

  int rank() const { return context.group.rank(); }
  int size() const { return context.group.size(); }
  // On the wire; counts what goes to others. Transfers of nothing are left out, as they are on the other side.
  void exchange(std::vector<DeviceTransfer> outgoing, std::vector<DeviceTransfer> incoming) const;
};

// destination = source * prescale * scale.
void allreduce_alone(DeviceWorkspace& workspace, std::span<const BucketTensor> tensors, const BucketReduction& reduction);
// By NCCL's own allreduce: of elements, in its order.
void allreduce_by_nccl(const NcclContext& nccl, std::span<const BucketTensor> tensors, const BucketReduction& reduction);
// As collective/reducescatter.h, by NCCL's allreduce of everything.
void reducescatter_by_sums_of_all(const NcclContext& nccl, std::vector<std::vector<BucketTensor>> by_rank,
                                  const BucketReduction& reduction);

}  // namespace hvd
