#include "collective/device/nccl_wire.h"

#include <utility>
#include <vector>

namespace hvd {

Ticket NcclWire::start(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming, const std::shared_ptr<void>&) {
  std::vector<DeviceTransfer> out, in;
  for (const Outgoing& each : outgoing) out.push_back({each.to, const_cast<void*>(each.data), each.bytes});
  for (const Incoming& each : incoming) in.push_back({each.from, each.data, each.bytes});
  nccl_.workspace.to_wire();
  nccl_.exchange(std::move(out), std::move(in));
  arrived_[next_] = nccl_.workspace.on_wire();
  return next_++;
}

void NcclWire::finish(Ticket ticket) { nccl_.workspace.from_wire(arrived_.extract(ticket).mapped()); }

// Of all parties in a step: enough for a wire to be fast, and small beside what GPUs have.
int64_t NcclWire::message_bytes(int parties) const {
  constexpr int64_t kAll = int64_t{8} << 20;
  return kAll / parties;
}

}  // namespace hvd
