// The half of an executor that carries out operations on GPU tensors: it gives them to the GPU and does not wait for it.
// Engine thread only.
#pragma once

#include <memory>
#include <span>

#include "collective/device/gpu_backend.h"
#include "schedule/executor_context.h"
#include "schedule/in_flight.h"
#include "schedule/operations.h"
#include "schedule/result.h"

namespace hvd {

class GpuExecutor {
 public:
  // The context outlives it. Opens the GPU and agrees with the other ranks on what carries their bytes: collective.
  explicit GpuExecutor(ExecutorContext& context);

  // As Executor::run; what the GPU has been given is in the engine' InFlight until it is done.
  Result run(std::span<Agreed> together);
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

}  // namespace hvd
