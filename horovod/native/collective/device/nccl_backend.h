// GPU tensors whose bytes NCCL carries. Operations that NCCL and the kernels do not support go through the host.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collective/device/gpu_backend.h"
#include "collective/device/host_backend.h"
#include "collective/device/nccl_wire.h"

namespace hvd {

class NcclBackend final : public GpuBackend {
 public:
  // Collective: joins the GPUs, and measures the costs of moving bytes. The library is used only during this call.
  NcclBackend(Common common, DeviceLibrary& library);

  void allreduce(std::span<const BucketTensor> tensors, const BucketReduction& reduction, const Route& route) override;
  void adasum(std::span<const BucketTensor> tensors, const BucketReduction& reduction) override;
  void average_integers(std::span<const BucketTensor> tensors, const BucketReduction& reduction,
                        const std::function<void(const Plan&)>& on_plan) override;
  void reducescatter(std::vector<std::vector<BucketTensor>> by_rank, const BucketReduction& reduction,
                     const Route& route) override;
  void broadcast(int root, void* data, size_t bytes) override;
  void move(const Movement& movement) override;

  int64_t take_saturated() override;
  HostTimes take_host_times() override;
  std::string failure() override;
  void abort() override;

 private:
  NcclContext nccl() { return {context_, *workspace_, *communicator_}; }
  HostBackend& host();  // made when first needed
  std::unique_ptr<Communicator> join(DeviceLibrary& library) const;

  const std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<HostBackend> host_;
};

// ---- reductions of elements by NCCL's own operations ---------------------------------------------------------------

// These functions enqueue work that begins and ends on the workspace's stream. destination = source * prescale * scale:
void allreduce_alone(DeviceWorkspace& workspace, std::span<const BucketTensor> tensors, const BucketReduction& reduction);
// NCCL's own allreduce: elements, in NCCL's order.
void allreduce_by_nccl(const NcclContext& nccl, std::span<const BucketTensor> tensors, const BucketReduction& reduction);
// reducescatter() of collective/allreduce.h, by an NCCL allreduce of everything.
void reducescatter_by_sums_of_all(const NcclContext& nccl, std::vector<std::vector<BucketTensor>> by_rank,
                                  const BucketReduction& reduction);

}  // namespace hvd
