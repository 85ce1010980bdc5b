// GPU tensors whose bytes NCCL carries, from GPU to GPU. What it and the kernels do not serve goes by way of the host.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "collective/device/gpu_backend.h"
#include "collective/device/host_backend.h"
#include "collective/device/nccl_routes.h"

namespace hvd {

class NcclBackend final : public GpuBackend {
 public:
  // The library outlives it.
  NcclBackend(Common common, DeviceLibrary& library) : GpuBackend(std::move(common)), library_(library) {}

  void allreduce(std::span<const BucketTensor> tensors, const BucketReduction& reduction, const Route& route) override;
  void adasum(std::span<const BucketTensor> tensors, const BucketReduction& reduction) override;
  void reducescatter(std::vector<std::vector<BucketTensor>> by_rank, const BucketReduction& reduction) override;
  void broadcast(int root, void* data, size_t bytes) override;
  void allgather(const void* own, std::span<const size_t> bytes, std::byte* all) override;
  void alltoall(const void* source, std::span<const size_t> sent, std::span<const size_t> received,
                std::byte* destination) override;

  int64_t take_saturated() override;
  HostTimes take_host_times() override;
  std::string failure() override;
  void abort() override;

 private:
  // Made when first needed, which is in the same operation on every rank.
  NcclContext nccl();
  HostBackend& host();
  void make_communicator();
  // Of what each rank sends and receives, in order: this rank's own part is copied.
  void exchange(std::span<const DeviceTransfer> sent, std::span<const DeviceTransfer> received);

  DeviceLibrary& library_;
  std::unique_ptr<HostBackend> host_;
  std::unique_ptr<Communicator> communicator_;
  std::atomic<Communicator*> made_{nullptr};  // the same, for any thread
};

}  // namespace hvd
