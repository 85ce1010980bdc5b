// Carries out what a process set's ranks have agreed on: chooses the collective, runs it, counts it. Engine thread only.
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

// The half of an executor that carries out operations on GPU tensors: it gives them to the GPU and does not wait for it.
class GpuExecutor {
 public:
  // The context outlives it. Opens the GPU and agrees with the other ranks on what carries their bytes: collective.
  explicit GpuExecutor(ExecutorContext& context);

  // As Executor::run; what the GPU has been given is in the engine's InFlight until it is done.
  Result run(std::span<Agreed> together);
  void tune() { backend_->force(context_.plan_rules.algorithms); }
  void abort() { backend_->abort(); }

 private:
  void begin(std::span<Agreed> together, DeviceWork& work);
  void set_clock();
  void furnish(Submission& stand_in, DeviceWork& work);
  // Notes what happens in the operation, for whoever listens.
  void watch(const Request& request, DeviceWork& work);
  DeviceMemory allocate(size_t bytes);

  ExecutorContext& context_;
  const std::unique_ptr<GpuBackend> backend_;
  OperationContext operation_;
};

class Executor {
 public:
  // `ranks` are the set's by their number in the job; `label` precedes names shown to listeners.
  Executor(const EngineContext& engine, std::vector<int> ranks, std::string label, Counters& counters);

  // Several are one bucket. What the operation leaves behind is the same for each of them.
  Result run(std::span<Agreed> together);

  void tune();  // takes the engine's settings, which have changed
  void abort_gpu();
  void close_gpu() { gpu_ = nullptr; }

 private:
  Result run_on_cpu(std::span<const Agreed> together);

  ExecutorContext context_;
  CpuBackend cpu_;
  OperationContext on_cpu_;
  std::unique_ptr<GpuExecutor> gpu_;  // made with the first operation on a GPU
};

}  // namespace hvd
