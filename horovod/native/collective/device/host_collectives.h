// The host's route of GPU tensors: everything goes through pinned memory of the host, and what is summed is summed there.
// For GPUs that NCCL cannot join, and for what NCCL and the kernels do not serve.
//
// Calls have the arguments of DeviceCollectives. They return when the last result is on its way back, ordered on the stream
// that was given; the calling thread waits for the host's part, and serves others meanwhile as in any collective. When one
// throws, the GPU has done with the tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "collective/context.h"
#include "collective/device/device_plan.h"
#include "collective/device/host_allreduce.h"
#include "collective/device/host_workspace.h"
#include "device/device.h"

namespace hvd {

class HostRoute {
 public:
  // All of these outlive it. The calls are ordered on the workspace's stream.
  HostRoute(const DeviceWorkspace& workspace, CollectiveContext& context);
  ~HostRoute();

  // CPU-reduce, see host_allreduce.h and host_lanes.h: contributions are quantised, sums once more, and where they cross to
  // other hosts by way of carriers, those of hosts too.
  void allreduce(std::span<const BucketTensor> tensors, const BucketReduction& reduction, const Route& route);
  // The others stage whole tensors.
  void adasum(std::span<const BucketTensor> tensors, const BucketReduction& reduction);
  void reducescatter(std::vector<std::vector<BucketTensor>> by_rank, const BucketReduction& reduction);
  void broadcast(int root, void* data, size_t bytes);
  void allgather(const void* own, std::span<const size_t> bytes, void* all);
  void alltoall(const void* source, std::span<const size_t> sent, std::span<const size_t> received, void* destination);

  // Finite values that a codec's range cut off on the host since the last call. (Those of the GPU: DeviceKernels.)
  int64_t take_saturated();
  // Of allreduces since the last call, as far as the GPU has done with them.
  HostTimes take_times() { return workspace_.stopwatch.take(); }

 private:
  // Does what the operation is, and ends it.
  void operate(const std::function<void()>& operation);
  // The tensors in pinned memory, sources filled once the stream is; and the way back of the destinations.
  std::vector<BucketTensor> staged(std::span<const BucketTensor> tensors, DType dtype);
  void bring_back(std::span<const BucketTensor> tensors, std::span<const BucketTensor> staged, DType dtype);
  void copy(void* to, const void* from, size_t bytes);
  void await_stream() { workspace_.await(workspace_.device.record(workspace_.stream)); }
  const PinnedWindow& pinned(Window& window, int ranks);

  // Constant after construction.
  CollectiveContext& context_;

  HostWorkspace workspace_;
  std::unique_ptr<PinnedWindow> window_;  // of this host's ranks, with the first allreduce
  int64_t saturated_ = 0;
};

}  // namespace hvd
