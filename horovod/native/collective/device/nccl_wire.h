// Between GPUs, over NCCL: what it runs with, messages, the level of a host, and what moving bytes costs.
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

// What collectives over NCCL run with. Belongs to one process set, and to its engine's thread.
struct NcclContext {
  CollectiveContext& context;
  DeviceWorkspace& workspace;
  Communicator& communicator;  // on the workspace's wire

  int rank() const { return context.group.rank(); }
  int size() const { return context.group.size(); }
  // On the wire; counts what goes to others. Transfers of nothing are left out, as they are on the other side.
  void exchange(std::vector<DeviceTransfer> outgoing, std::vector<DeviceTransfer> incoming) const;
};

// Messages between GPUs. To start and to finish is to enqueue: kernels of one step run while another is on the wire.
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

// GPUs of a host: what they send each other, and what has arrived, goes from one to the other by messages. Each step under way
// has a slot:
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
  // More than the last stage lags behind the first: what comes into a slot again comes after all of its last step.
  static constexpr uint32_t kSlots = 6;

  std::byte* slot(uint32_t step) const { return memory_.get() + step % kSlots * slot_bytes_; }

  Wire& wire_;
  std::optional<HostSteps> steps_;
  std::shared_ptr<std::byte[]> memory_;
  size_t inputs_offset_ = 0, own_bytes_ = 0;  // what arrives of the own slice, and of one rank
  std::vector<size_t> receive_offsets_;       // by carrier
  size_t slot_bytes_ = 0;
  std::optional<Ticket> sent_[kSlots], published_[kSlots];
};

// What moving bytes between GPUs costs in a process set: measured once, and the same on every rank. Each GPU copies in its
// memory and exchanges messages with the next of its host; the first of each host does with that of the next. Of the ranks'
// figures the slowest counts. Takes some milliseconds, between hosts at 1 Gbit/s about a tenth of a second. Collective.
GpuCosts measure_gpu(const NcclContext& nccl);

}  // namespace hvd
