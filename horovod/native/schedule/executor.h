// Carries out the agreed operations of a process set: chooses the collective, runs it, counts it. Engine thread only.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collective/backend.h"
#include "collective/device/gpu_backend.h"
#include "schedule/context.h"
#include "schedule/handles.h"
#include "schedule/operations.h"
#include "schedule/rank_gpu.h"

namespace hvd {

// The part of an executor for GPU tensors. It enqueues operations and does not wait for the GPU.
class GpuExecutor {
 public:
  // Collective: opens the GPU and agrees with the other ranks on NCCL or the host. The context outlives it.
  explicit GpuExecutor(ExecutorContext& context);

  // As Executor::run. The work is in the engine's InFlight until the GPU has done it.
  Result run(std::span<Agreed> together);
  void tune() { backend_->force(context_.plan_rules.algorithms); }
  void abort() { backend_->abort(); }

 private:
  void begin(std::span<Agreed> together, DeviceWork& work);
  void set_clock();
  void furnish(Submission& stand_in, DeviceWork& work);
  // Records the operation's activities for listeners.
  void watch(const Request& request, DeviceWork& work);
  DeviceMemory allocate(size_t bytes);

  ExecutorContext& context_;
  const std::unique_ptr<GpuBackend> backend_;
  OperationContext operation_;
};

class Executor {
 public:
  // `ranks`: of the set, numbered in the job. `label` precedes names shown to listeners.
  Executor(const EngineContext& engine, std::vector<int> ranks, std::string label, Counters& counters);

  // Several submissions are one bucket, and all have the same result.
  Result run(std::span<Agreed> together);

  void tune();  // reads the engine's settings again
  void abort_gpu();
  void close_gpu() { gpu_ = nullptr; }

 private:
  Result run_on_cpu(std::span<const Agreed> together);

  ExecutorContext context_;
  CpuBackend cpu_;
  OperationContext on_cpu_;
  std::unique_ptr<GpuExecutor> gpu_;  // made by the first operation on a GPU
};

}  // namespace hvd
