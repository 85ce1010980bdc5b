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
// By NCCL's own allreduce: of elements, in its order; it never gathers.
void allreduce_by_nccl(const NcclContext& nccl, std::span<const BucketTensor> tensors, const BucketReduction& reduction,
                       bool gather);
// Summed by kernels in the order of ranks: all contributions go to all, or to the slice's owner and its results to all.
void allreduce_by_nccl_exchange(const NcclContext& nccl, std::span<const BucketTensor> tensors,
                                const BucketReduction& reduction, bool gather);
// Summed inside each host first; codes cross between hosts, to all of them or to the slice's owner.
void allreduce_by_nccl_hierarchy(const NcclContext& nccl, std::span<const BucketTensor> tensors,
                                 const BucketReduction& reduction, bool gather);
// As collective/reducescatter.h: encoded or not, in the order of ranks; or by NCCL's allreduce of everything.
void reducescatter_by_nccl_exchange(const NcclContext& nccl, std::vector<std::vector<BucketTensor>> by_rank,
                                    const BucketReduction& reduction);
void reducescatter_by_sums_of_all(const NcclContext& nccl, std::vector<std::vector<BucketTensor>> by_rank,
                                  const BucketReduction& reduction);

}  // namespace hvd
