// The half of an executor that carries out operations on GPU tensors: it gives them to the GPU and does not wait for it.
// Engine thread only.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "collective/device/device_collectives.h"
#include "schedule/in_flight.h"
#include "schedule/operations.h"
#include "schedule/result.h"
#include "schedule/workbench.h"

namespace hvd {

class DeviceExecutor final : private Operations {
 public:
  // The bench outlives it. Opens the GPU and agrees with the other ranks on what carries their bytes: collective.
  explicit DeviceExecutor(Workbench& bench);

  // As Executor::run; what the GPU has been given is in the surroundings' InFlight until it is done.
  Result run(std::span<Agreed> together);
  void abort() { collectives_->abort(); }

 private:
  void begin(std::span<Agreed> together, DeviceWork& work);
  void set_clock();
  void furnish(Submission& stand_in, DeviceWork& work);
  // Notes what happens in the operation, for whoever listens.
  void watch(const Request& request, DeviceWork& work);

  void allreduce(std::span<const Agreed> together, DType dtype) override;
  void reducescatter(std::span<const Agreed> together, DType dtype) override;
  void allgather(const void* own, std::span<const size_t> bytes, std::byte* all) override;
  void broadcast(int root, void* data, size_t bytes) override;
  void alltoall(const void* source, std::span<const size_t> sent, std::span<const size_t> received,
                std::byte* destination) override;
  std::shared_ptr<std::byte[]> allocate(size_t bytes) override;
  void copy(void* to, const void* from, size_t bytes) override;

  const std::unique_ptr<DeviceCollectives> collectives_;
  std::string route_, reason_;  // of the allreduce that is being carried out
};

}  // namespace hvd
