// Messages between GPUs. To start and to finish is to enqueue: kernels of one step run while another is on the wire.
#pragma once

#include <unordered_map>

#include "collective/device/nccl_routes.h"
#include "collective/wire.h"

namespace hvd {

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

}  // namespace hvd
