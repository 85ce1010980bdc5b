// GPU tensors that go through pinned memory of the host, whatever joins ranks on the CPU; what is summed is summed there. For
// GPUs that NCCL cannot join, and for what NCCL and the kernels do not serve.
//
// Calls return when the last result is on its way back; the calling thread waits for the host's part, and serves others
// meanwhile as in any collective. When one throws, the GPU has done with the tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "collective/device/gpu_backend.h"
#include "collective/device/host_workspace.h"

namespace hvd {

class HostBackend final : public GpuBackend {
 public:
  explicit HostBackend(Common common);
  ~HostBackend() override;

  // CPU-reduce, see gpu_tensors.h: contributions are quantised, sums once more, and where they cross to
  // other hosts by way of carriers, those of hosts too.
  void allreduce(std::span<const BucketTensor> tensors, const BucketReduction& reduction, const Route& route) override;
  // The others stage whole tensors.
  void adasum(std::span<const BucketTensor> tensors, const BucketReduction& reduction) override;
  void average_integers(std::span<const BucketTensor> tensors, const BucketReduction& reduction,
                        const std::function<void(const Plan&)>& on_plan) override;
  void reducescatter(std::vector<std::vector<BucketTensor>> by_rank, const BucketReduction& reduction,
                     const Route& route) override;
  void broadcast(int root, void* data, size_t bytes) override;
  void move(const Movement& movement) override;

  int64_t take_saturated() override;
  // As far as the GPU has done with them.
  HostTimes take_host_times() override { return host_.stopwatch.take(); }

 private:
  // Does what the operation is, and ends it.
  void operate(const std::function<void()>& operation);
  // The tensors in pinned memory, sources filled once the stream is; and the way back of the destinations.
  std::vector<BucketTensor> staged(std::span<const BucketTensor> tensors, DType dtype);
  void bring_back(std::span<const BucketTensor> tensors, std::span<const BucketTensor> staged, DType dtype);
  void await_stream() { host_.await(device().record(stream())); }

  HostWorkspace host_;
  int64_t saturated_ = 0;
};

}  // namespace hvd
