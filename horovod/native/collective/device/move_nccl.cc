// What moves bytes over NCCL and computes nothing.
#include <algorithm>

#include "collective/device/nccl_routes.h"

namespace hvd {

void NcclContext::exchange(std::vector<DeviceTransfer> outgoing, std::vector<DeviceTransfer> incoming) const {
  auto is_nothing = [](const DeviceTransfer& transfer) { return transfer.bytes == 0; };
  std::erase_if(outgoing, is_nothing);
  std::erase_if(incoming, is_nothing);
  for (const DeviceTransfer& out : outgoing) context.wire_bytes += static_cast<int64_t>(out.bytes);
  if (!outgoing.empty() || !incoming.empty()) communicator.exchange(outgoing, incoming);
}

void broadcast_by_nccl(const NcclContext& nccl, int root, void* data, size_t bytes) {
  if (bytes == 0) return;
  nccl.workspace.to_wire();
  nccl.communicator.broadcast(data, bytes, root);
  nccl.workspace.from_wire(nccl.workspace.on_wire());
  // As a ring passes it on; the last rank of it sends nothing.
  const int place = (nccl.rank() - root + nccl.size()) % nccl.size();
  if (place != nccl.size() - 1) nccl.context.wire_bytes += static_cast<int64_t>(bytes);
}

void allgather_by_nccl(const NcclContext& nccl, const void* own, std::span<const size_t> bytes, std::byte* all) {
  const auto rank = static_cast<size_t>(nccl.rank());
  std::vector<DeviceTransfer> outgoing, incoming;
  for (size_t r = 0; r < bytes.size(); ++r) {
    if (r != rank) {
      outgoing.push_back({static_cast<int>(r), const_cast<void*>(own), bytes[rank]});
      incoming.push_back({static_cast<int>(r), all, bytes[r]});
    } else if (bytes[r] != 0 && all != own) {
      nccl.workspace.device().copy(nccl.workspace.stream(), all, own, bytes[r]);
    }
    all += bytes[r];
  }
  nccl.workspace.to_wire();
  nccl.exchange(std::move(outgoing), std::move(incoming));
  nccl.workspace.from_wire(nccl.workspace.on_wire());
}

void alltoall_by_nccl(const NcclContext& nccl, const void* source, std::span<const size_t> sent,
                      std::span<const size_t> received, std::byte* destination) {
  auto* from = static_cast<std::byte*>(const_cast<void*>(source));
  std::vector<DeviceTransfer> outgoing, incoming;
  for (size_t r = 0; r < sent.size(); ++r) {
    if (static_cast<int>(r) != nccl.rank()) {
      outgoing.push_back({static_cast<int>(r), from, sent[r]});
      incoming.push_back({static_cast<int>(r), destination, received[r]});
    } else if (sent[r] != 0) {
      nccl.workspace.device().copy(nccl.workspace.stream(), destination, from, sent[r]);
    }
    from += sent[r];
    destination += received[r];
  }
  nccl.workspace.to_wire();
  nccl.exchange(std::move(outgoing), std::move(incoming));
  nccl.workspace.from_wire(nccl.workspace.on_wire());
}

}  // namespace hvd
