// NCCL between GPUs: messages, the level inside a host, and the costs of moving bytes.
#pragma once

#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "collective/context.h"
#include "collective/device/device_workspace.h"
#include "collective/host_level.h"
#include "collective/layout.h"
#include "collective/plan.h"
#include "collective/wire.h"
#include "device/communicator.h"

namespace hvd {

// The context of collectives over NCCL. Belongs to one process set and its engine's thread.
struct NcclContext {
  CollectiveContext& context;
  DeviceWorkspace& workspace;
  Communicator& communicator;  // on the workspace's wire

  int rank() const { return context.group.rank(); }
  int size() const { return context.group.size(); }
  // Enqueues transfers on the wire, and counts bytes sent to others. Empty transfers are left out on both sides.
  void exchange(std::vector<DeviceTransfer> outgoing, std::vector<DeviceTransfer> incoming) const;
};

// Messages between GPUs. start() and finish() only enqueue: kernels of one step run while another step is on the wire.
class NcclWire final : public Wire {
 public:
  explicit NcclWire(const NcclContext& nccl) : nccl_(nccl) {}

  Ticket start(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming, const std::shared_ptr<void>&) override;
  void finish(Ticket ticket) override;
  void progress() override {}
  uint32_t lag() const override { return 1; }
  int64_t message_bytes(int parties) const override;

 private:
  const NcclContext nccl_;
  std::unordered_map<Ticket, Event> arrived_;
  Ticket next_ = 0;
};

// The level inside a host by messages between its GPUs. Each step under way has a slot:
//
//   slot := own send buffer, of the other carriers' slices; those of [locals], of the own slice; receive_buffer[carriers]
class NcclLevel final : public HostLevel {
 public:
  explicit NcclLevel(Wire& wire) : wire_(wire) {}

  int64_t elements_per_bucket(const HostRole& role, const TensorMemory& memory, const BucketReduction& reduction,
                              bool gather) const override;
  bool begin(const HostSteps& steps) override;
  void end() override {}

  void await_room(uint32_t) override {}
  std::byte* send_buffer(uint32_t step, int slice) override;
  void sent(uint32_t step) override;
  void await_sent(uint32_t step) override;
  std::byte* send_buffer_of(int local_rank, uint32_t step) override;
  void taken() override {}
  void await_receive_buffer(uint32_t) override {}
  std::byte* receive_buffer(int carrier, uint32_t step) override;
  void publish(uint32_t step) override;
  void await_published(uint32_t step, int carrier) override;
  void collected() override {}

 private:
  // More than the last stage lags behind the first, so a slot is free when it is used again.
  static constexpr uint32_t kSlots = 6;

  std::byte* slot(uint32_t step) const { return memory_.get() + step % kSlots * slot_bytes_; }

  Wire& wire_;
  std::optional<HostSteps> steps_;
  std::shared_ptr<std::byte[]> memory_;
  size_t inputs_offset_ = 0, own_bytes_ = 0;  // where the data of the own slice arrives, and the bytes of one rank
  std::vector<size_t> receive_offsets_;       // by carrier
  size_t slot_bytes_ = 0;
  std::optional<Ticket> sent_[kSlots], published_[kSlots];
};

// Measures the costs of moving bytes between GPUs. Each GPU copies in its memory and exchanges messages with the next GPU of
// its host; the first GPU of each host does so with the first of the next host. The slowest rank's figures count, on every
// rank. Takes some milliseconds; between hosts at 1 Gbit/s about a tenth of a second. Collective.
GpuCosts measure_gpu(const NcclContext& nccl);

}  // namespace hvd
