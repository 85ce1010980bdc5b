// GPU tensors whose bytes NCCL carries, from GPU to GPU. What it and the kernels do not serve goes by way of the host.
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
  // Joins the GPUs, and measures what that gives: collective. The library is needed for this only.
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

// ---- reductions of elements, without messages of ours ---------------------------------------------------------------

// All enqueue and return; they begin and end on the workspace's stream. destination = source * prescale * scale:
void allreduce_alone(DeviceWorkspace& workspace, std::span<const BucketTensor> tensors, const BucketReduction& reduction);
// By NCCL's own allreduce: of elements, in its order.
void allreduce_by_nccl(const NcclContext& nccl, std::span<const BucketTensor> tensors, const BucketReduction& reduction);
// As collective/allreduce.h, by NCCL's allreduce of everything.
void reducescatter_by_sums_of_all(const NcclContext& nccl, std::vector<std::vector<BucketTensor>> by_rank,
                                  const BucketReduction& reduction);

}  // namespace hvd
