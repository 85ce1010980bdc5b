// GPU tensors that go through pinned host memory and the CPU's transports; the CPU sums. For GPUs that NCCL cannot join, and
// for operations that NCCL and the kernels do not support.
//
// Calls return when the last copy of a result is enqueued. The calling thread waits for the host's part, and meanwhile serves
// other ranks. If a call throws, the GPU is done with the tensors.
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

  // CPU-reduce, see staged_tensors.h. Contributions are quantised, then sums, and on hierarchical routes also sums of hosts.
  void allreduce(std::span<const BucketTensor> tensors, const BucketReduction& reduction, const Route& route) override;
  // The other operations copy whole tensors to pinned memory.
  void adasum(std::span<const BucketTensor> tensors, const BucketReduction& reduction) override;
  void average_integers(std::span<const BucketTensor> tensors, const BucketReduction& reduction,
                        const std::function<void(const Plan&)>& on_plan) override;
  void reducescatter(std::vector<std::vector<BucketTensor>> by_rank, const BucketReduction& reduction,
                     const Route& route) override;
  void broadcast(int root, void* data, size_t bytes) override;
  void move(const Movement& movement) override;

  int64_t take_saturated() override;
  // Times of work that the GPU has completed.
  HostTimes take_host_times() override { return host_.stopwatch.take(); }

 private:
  // Runs the operation, and ends it also if it throws.
  void operate(const std::function<void()>& operation);
  // staged() returns copies of the tensors in pinned memory, filled when the stream is done; bring_back() copies the results to
  // the destinations.
  std::vector<BucketTensor> staged(std::span<const BucketTensor> tensors, DType dtype);
  void bring_back(std::span<const BucketTensor> tensors, std::span<const BucketTensor> staged, DType dtype);
  void await_stream() { host_.await(device().record(stream())); }

  HostWorkspace host_;
  int64_t saturated_ = 0;
};

}  // namespace hvd
