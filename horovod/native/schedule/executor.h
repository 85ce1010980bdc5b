// Carries out what a process set's ranks have agreed on: chooses the collective, runs it, counts it. Engine thread only.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collective/backend.h"
#include "schedule/executor_context.h"
#include "schedule/gpu_executor.h"
#include "schedule/operations.h"

namespace hvd {

class Executor {
 public:
  // `ranks` are the set's by their number in the job; `label` precedes names shown to listeners.
  Executor(const EngineContext& engine, std::vector<int> ranks, std::string label, Counters& counters);

  // Several are one bucket. What the operation leaves behind is the same for each of them.
  Result run(std::span<Agreed> together);

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
