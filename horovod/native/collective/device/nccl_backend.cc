#include "collective/device/nccl_backend.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "collective/allreduce_patterns.h"
#include "collective/device/gpu_tensors.h"
#include "collective/device/measure_gpu.h"
#include "collective/device/nccl_level.h"
#include "collective/device/nccl_wire.h"
#include "collective/reducescatter.h"

namespace hvd {

void NcclContext::exchange(std::vector<DeviceTransfer> outgoing, std::vector<DeviceTransfer> incoming) const {
  auto is_nothing = [](const DeviceTransfer& transfer) { return transfer.bytes == 0; };
  std::erase_if(outgoing, is_nothing);
  std::erase_if(incoming, is_nothing);
  for (const DeviceTransfer& out : outgoing) context.wire_bytes += static_cast<int64_t>(out.bytes);
  if (!outgoing.empty() || !incoming.empty()) communicator.exchange(outgoing, incoming);
}

NcclBackend::NcclBackend(Common common, DeviceLibrary& library) : GpuBackend(std::move(common)), communicator_(join(library)) {
  if (rules_.is_deterministic) return;
  try {
    rules_.costs.gpu = measure_gpu(nccl());
  } catch (...) {
    communicator_->abort();  // a peer may have gone: nobody would wait for it in vain
    throw;
  }
}

void NcclBackend::allreduce(std::span<const BucketTensor> tensors, const BucketReduction& reduction, const Route& route) {
  if (route.is_staged) return host().allreduce(tensors, reduction, route);
  const AllreducePattern& pattern = pattern_of(route);
  if (pattern.run_by_nccl != nullptr) return pattern.run_by_nccl(nccl(), tensors, reduction);
  GpuTensors memory(*workspace_);
  NcclWire wire(nccl());
  NcclLevel level(wire);
  pattern.run({context_, memory, wire, &level}, tensors, reduction, route.gathers());
}

void NcclBackend::adasum(std::span<const BucketTensor> tensors, const BucketReduction& reduction) {
  host().adasum(tensors, reduction);
}

void NcclBackend::reducescatter(std::vector<std::vector<BucketTensor>> by_rank, const BucketReduction& reduction,
                                const Route& route) {
  if (route.is_staged) return host().reducescatter(std::move(by_rank), reduction, route);
  if (route.pattern == Pattern::kLibrary) return reducescatter_by_sums_of_all(nccl(), std::move(by_rank), reduction);
  std::vector<Layout> slices;
  for (std::vector<BucketTensor>& parts : by_rank) slices.emplace_back(std::move(parts), reduction);
  GpuTensors memory(*workspace_);
  NcclWire wire(nccl());
  hvd::reducescatter({context_, memory, wire}, std::move(slices));
}

void NcclBackend::broadcast(int root, void* data, size_t bytes) {
  if (bytes == 0) return;
  const NcclContext by = nccl();
  workspace_->to_wire();
  by.communicator.broadcast(data, bytes, root);
  workspace_->from_wire(workspace_->on_wire());
  // As a ring passes it on; the last rank of it sends nothing.
  const int place = (by.rank() - root + by.size()) % by.size();
  if (place != by.size() - 1) context_.wire_bytes += static_cast<int64_t>(bytes);
}

void NcclBackend::move(const Movement& movement) {
  std::vector<DeviceTransfer> outgoing, incoming;
  for (int r = 0; r < context_.group.size(); ++r) {
    const auto [from, bytes] = movement.sent[static_cast<size_t>(r)];
    const auto [to, coming] = movement.received[static_cast<size_t>(r)];
    if (r == context_.group.rank()) {
      copy(movement.destination + to, movement.source + from, bytes);
    } else {
      outgoing.push_back({r, const_cast<std::byte*>(movement.source) + from, bytes});
      incoming.push_back({r, movement.destination + to, coming});
    }
  }
  workspace_->to_wire();
  nccl().exchange(std::move(outgoing), std::move(incoming));
  workspace_->from_wire(workspace_->on_wire());
}

HostBackend& NcclBackend::host() {
  if (host_ == nullptr) host_ = std::make_unique<HostBackend>(Common{workspace_, context_, rules_, agreement_});
  return *host_;
}

// Rank 0 makes the id, and sends the reason if it cannot. After that each rank speaks for itself: one that fails gives up, of
// which the others hear while they wait for it in NCCL.
std::unique_ptr<Communicator> NcclBackend::join(DeviceLibrary& library) const {
  const RankGroup& group = context_.group;
  const auto fail = [&] [[noreturn]] (int rank, const std::string& why) {
    throw InternalError("NCCL cannot join the GPUs: rank " + std::to_string(group.ranks()[static_cast<size_t>(rank)]) + ": " +
                        why + ". HOROVOD_GPU_TRANSPORT=host goes without it");
  };
  CommunicatorId id{};
  std::string failed;
  if (group.rank() == 0) {
    try {
      id = library.make_communicator_id();
    } catch (const InternalError& error) {
      failed = error.what();
    }
  }
  if (const std::string why = exchange_texts(context_, failed).front(); !why.empty()) fail(0, why);
  const std::string id_text = exchange_texts(context_, {reinterpret_cast<const char*>(id.data()), id.size()}).front();
  std::memcpy(id.data(), id_text.data(), id.size());
  try {
    return library.make_communicator(device(), workspace_->wire(), id, group.rank(), group.size(),
                                     workspace_->progress_callback());
  } catch (const InternalError& error) {
    fail(group.rank(), error.what());
  }
}

int64_t NcclBackend::take_saturated() {
  return host_ ? host_->take_saturated() : GpuBackend::take_saturated();  // the host's has the kernels' in it
}

HostTimes NcclBackend::take_host_times() { return host_ ? host_->take_host_times() : HostTimes(); }

std::string NcclBackend::failure() { return communicator_->failure(); }

void NcclBackend::abort() { communicator_->abort(); }

}  // namespace hvd
