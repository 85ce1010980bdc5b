// Carries out the agreed operations of a process set: chooses the collective, runs it, counts it. Engine thread only.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collective/backend.h"
#include "schedule/context.h"
#include "schedule/handles.h"
#include "schedule/operations.h"

namespace hvd {

class GpuExecutor;  // the part for GPU tensors

class Executor {
 public:
  // `ranks`: of the set, numbered in the job. `label` precedes names shown to listeners.
  Executor(const EngineContext& engine, std::vector<int> ranks, std::string label, Counters& counters);
  ~Executor();

  // Several submissions are one bucket, and all have the same result.
  Result run(std::span<Agreed> together);

  void tune();       // reads the engine's settings again
  void abort_gpu();  // after a failure: lets this set's streams continue
  void close_gpu();  // at the end: frees this set's objects on the GPU

 private:
  Result run_on_cpu(std::span<const Agreed> together);

  ExecutorContext context_;
  const std::unique_ptr<Backend> cpu_;
  OperationContext on_cpu_;
  std::unique_ptr<GpuExecutor> gpu_;  // made by the first operation on a GPU
};

}  // namespace hvd
