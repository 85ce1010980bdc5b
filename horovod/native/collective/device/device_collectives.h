// The collectives of GPU tensors. An executor makes one of these for its process set with the first of them, and calls it as
// it calls collective/*.h for tensors of the CPU. The routes are drawn in docs/architecture.md.
//
// Calls return when everything is enqueued on stream(); on the host's route, when the last result is on its way back. They
// throw InternalError when a transport or NCCL fails.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collective/bucket_tensor.h"
#include "collective/context.h"
#include "collective/device/device_plan.h"
#include "collective/device/device_workspace.h"
#include "collective/device/host_workspace.h"
#include "device/device_library.h"

namespace hvd {

class DeviceCollectives {
 public:
  virtual ~DeviceCollectives() = default;

  virtual Device& device() = 0;
  // Where everything happens: callers' events are awaited by it, and it is what completion is recorded on.
  virtual Stream stream() = 0;

  // The same on every rank.
  virtual Plan plan(std::span<const BucketTensor> tensors, const BucketReduction& reduction) const = 0;
  // Sources and destinations are of the GPU; feedback is kept there too. The reduction has a codec only if the plan uses it.
  virtual void allreduce(std::span<const BucketTensor> tensors, const BucketReduction& reduction, const Route& route) = 0;
  virtual void adasum(std::span<const BucketTensor> tensors, const BucketReduction& reduction) = 0;
  // One list of parts for each rank, as in collective/reducescatter.h.
  virtual void reducescatter(std::vector<std::vector<BucketTensor>> by_rank, const BucketReduction& reduction) = 0;
  virtual void broadcast(int root, void* data, size_t bytes) = 0;
  // `bytes` by rank; `all` is of the GPU.
  virtual void allgather(const void* own, std::span<const size_t> bytes, void* all) = 0;
  virtual void alltoall(const void* source, std::span<const size_t> sent, std::span<const size_t> received,
                        void* destination) = 0;

  virtual int64_t take_saturated() = 0;
  // Of allreduces on the host's route since the last call.
  virtual HostTimes take_host_times() = 0;
  // What has failed on the GPU or between GPUs since; empty while all is well.
  virtual std::string failure() = 0;
  // Ends what is under way; for nothing but destruction afterwards.
  virtual void abort() = 0;
};

// Collective over the context's group: the ranks tell each other what GPUs they have, and agree on what carries their bytes.
// `gpu_transport` is HOROVOD_GPU_TRANSPORT: "auto", "nccl" or "host"; what cannot be is an InternalError on every rank. The
// workspace is that of all process sets of an engine. Context and rules outlive the result.
std::unique_ptr<DeviceCollectives> make_device_collectives(DeviceLibrary& library, std::shared_ptr<DeviceWorkspace> workspace,
                                                           CollectiveContext& context, const PlanRules& rules,
                                                           const std::string& gpu_transport);

}  // namespace hvd
