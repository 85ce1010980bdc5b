// Carries out what a process set's ranks have agreed on: chooses the collective, runs it, counts it. Engine thread only.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "schedule/device_executor.h"
#include "schedule/operations.h"
#include "schedule/workbench.h"

namespace hvd {

// Operations on tensors in CPU memory.
class CpuOperations final : public Operations {
 public:
  using Operations::Operations;

 private:
  void allreduce(std::span<const Agreed> together, DType dtype) override;
  void reducescatter(std::span<const Agreed> together, DType dtype) override;
  void allgather(const void* own, std::span<const size_t> bytes, std::byte* all) override;
  void broadcast(int root, void* data, size_t bytes) override;
  void alltoall(const void* source, std::span<const size_t> sent, std::span<const size_t> received,
                std::byte* destination) override;
  std::shared_ptr<std::byte[]> allocate(size_t bytes) override;
  void copy(void* to, const void* from, size_t bytes) override;
};

class Executor {
 public:
  // `ranks` are the set's by their number in the job; `label` precedes names shown to listeners.
  Executor(const Surroundings& surroundings, std::vector<int> ranks, std::string label, Counters& counters);

  // Several are one bucket. What the operation leaves behind is the same for each of them.
  Result run(std::span<Agreed> together);

  void abort_gpu();
  void close_gpu() { device_ = nullptr; }

 private:
  Result run_on_cpu(std::span<const Agreed> together);

  Workbench bench_;
  CpuOperations on_cpu_;
  std::unique_ptr<DeviceExecutor> device_;  // made with the first operation on a GPU
};

}  // namespace hvd
