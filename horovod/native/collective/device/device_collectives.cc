#include "collective/device/device_collectives.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/error.h"
#include "collective/allreduce.h"
#include "collective/device/device_agreement.h"
#include "collective/device/host_collectives.h"
#include "collective/device/nccl_routes.h"

namespace hvd {
namespace {

// NCCL's, or the host's route: which of them, all ranks decide alike.
class NcclOrHost : public DeviceCollectives {
 public:
  NcclOrHost(DeviceLibrary& library, std::shared_ptr<DeviceWorkspace> workspace, CollectiveContext& context,
             const PlanRules& rules, DeviceAgreement agreement)
      : library_(library),
        workspace_(std::move(workspace)),
        context_(context),
        rules_(rules),
        agreement_(std::move(agreement)) {}

  Device& device() override { return workspace_->device(); }
  Stream stream() override { return workspace_->stream(); }

  Plan plan(std::span<const BucketTensor> tensors, const BucketReduction& reduction) const override;
  void allreduce(std::span<const BucketTensor> tensors, const BucketReduction& reduction, const Route& route) override;
  void adasum(std::span<const BucketTensor> tensors, const BucketReduction& reduction) override;
  void reducescatter(std::vector<std::vector<BucketTensor>> by_rank, const BucketReduction& reduction) override;
  void broadcast(int root, void* data, size_t bytes) override;
  void allgather(const void* own, std::span<const size_t> bytes, void* all) override;
  void alltoall(const void* source, std::span<const size_t> sent, std::span<const size_t> received, void* destination) override;

  int64_t take_saturated() override { return workspace_->kernels().take_saturated() + (host_ ? host_->take_saturated() : 0); }
  HostTimes take_host_times() override { return host_ ? host_->take_times() : HostTimes(); }
  std::string failure() override;
  void abort() override;

 private:
  bool is_alone() const { return context_.group.size() == 1; }
  bool uses_nccl() const { return agreement_.has_nccl && !is_alone(); }
  // Made when first needed, which is in the same operation on every rank.
  NcclContext nccl();
  HostRoute& host();
  void make_communicator();

  // Constant after construction.
  DeviceLibrary& library_;
  const std::shared_ptr<DeviceWorkspace> workspace_;
  CollectiveContext& context_;
  const PlanRules& rules_;
  const DeviceAgreement agreement_;

  std::unique_ptr<HostRoute> host_;
  std::unique_ptr<Communicator> communicator_;
  std::atomic<Communicator*> made_{nullptr};  // the same, for any thread
};

Plan NcclOrHost::plan(std::span<const BucketTensor> tensors, const BucketReduction& reduction) const {
  DevicePlanFacts facts;
  static_cast<PlanFacts&>(facts) = facts_of(context_.group, tensors, reduction);
  facts.has_nccl = agreement_.has_nccl;
  facts.why_no_nccl = agreement_.why;
  facts.nccl_serves = nccl_reduces(reduction.dtype, reduction.op);
  facts.dtype = reduction.dtype;
  facts.op = reduction.op;
  return plan_device_allreduce(facts, rules_);
}

void NcclOrHost::allreduce(std::span<const BucketTensor> tensors, const BucketReduction& reduction, const Route& route) {
  if (route.pattern == Pattern::kAlone) return allreduce_alone(*workspace_, tensors, reduction);
  if (route.carrier == Carrier::kHost) return host().allreduce(tensors, reduction, route);
  if (route.pattern == Pattern::kLibrary) return allreduce_by_nccl(nccl(), tensors, reduction);
  const auto by = route.is_hierarchical() ? allreduce_by_nccl_hierarchy : allreduce_by_nccl_exchange;
  by(nccl(), tensors, reduction, route.gathers());
}

void NcclOrHost::adasum(std::span<const BucketTensor> tensors, const BucketReduction& reduction) {
  host().adasum(tensors, reduction);
}

void NcclOrHost::reducescatter(std::vector<std::vector<BucketTensor>> by_rank, const BucketReduction& reduction) {
  if (is_alone()) return allreduce_alone(*workspace_, by_rank.front(), reduction);
  const bool kernels_can = kernels_reduce(reduction.dtype, reduction.op) &&
                           context_.group.size() <= static_cast<int>(DeviceKernels::kMostContributions);
  const bool nccl_can = reduction.codec == nullptr && nccl_reduces(reduction.dtype, reduction.op) && !rules_.is_deterministic;
  if (uses_nccl() && (kernels_can || nccl_can)) {
    reducescatter_by_nccl(nccl(), std::move(by_rank), reduction);
  } else {
    host().reducescatter(std::move(by_rank), reduction);
  }
}

void NcclOrHost::broadcast(int root, void* data, size_t bytes) {
  if (is_alone()) return;
  if (uses_nccl()) {
    broadcast_by_nccl(nccl(), root, data, bytes);
  } else {
    host().broadcast(root, data, bytes);
  }
}

void NcclOrHost::allgather(const void* own, std::span<const size_t> bytes, void* all) {
  if (is_alone()) {
    if (bytes[0] != 0 && all != own) device().copy(stream(), all, own, bytes[0]);
  } else if (uses_nccl()) {
    allgather_by_nccl(nccl(), own, bytes, static_cast<std::byte*>(all));
  } else {
    host().allgather(own, bytes, all);
  }
}

void NcclOrHost::alltoall(const void* source, std::span<const size_t> sent, std::span<const size_t> received,
                          void* destination) {
  if (is_alone()) {
    if (sent[0] != 0) device().copy(stream(), destination, source, sent[0]);
  } else if (uses_nccl()) {
    alltoall_by_nccl(nccl(), source, sent, received, static_cast<std::byte*>(destination));
  } else {
    host().alltoall(source, sent, received, destination);
  }
}

HostRoute& NcclOrHost::host() {
  if (host_ == nullptr) host_ = std::make_unique<HostRoute>(*workspace_, context_);
  return *host_;
}

NcclContext NcclOrHost::nccl() {
  if (communicator_ == nullptr) make_communicator();
  return {context_, *workspace_, *communicator_};
}

// Rank 0 makes the id, and sends the reason if it cannot. After that each rank speaks for itself: one that fails gives up, of
// which the others hear while they wait for it in NCCL.
void NcclOrHost::make_communicator() {
  const RankGroup& group = context_.group;
  const auto fail = [&](int rank, const std::string& why) {
    throw InternalError("NCCL cannot join the GPUs: rank " + std::to_string(group.ranks()[static_cast<size_t>(rank)]) + ": " +
                        why + ". HOROVOD_GPU_TRANSPORT=host goes without it");
  };
  CommunicatorId id{};
  std::string failed;
  if (group.rank() == 0) {
    try {
      id = library_.make_communicator_id();
    } catch (const InternalError& error) {
      failed = error.what();
    }
  }
  if (const std::string why = exchange_texts(context_, failed).front(); !why.empty()) fail(0, why);
  const std::string id_text = exchange_texts(context_, {reinterpret_cast<const char*>(id.data()), id.size()}).front();
  std::memcpy(id.data(), id_text.data(), id.size());
  try {
    communicator_ =
        library_.make_communicator(device(), workspace_->wire(), id, group.rank(), group.size(), workspace_->attention());
  } catch (const InternalError& error) {
    fail(group.rank(), error.what());
  }
  made_ = communicator_.get();
}

std::string NcclOrHost::failure() {
  Communicator* communicator = made_;
  return communicator ? communicator->failure() : "";
}

void NcclOrHost::abort() {
  if (Communicator* communicator = made_) communicator->abort();
}

}  // namespace

std::unique_ptr<DeviceCollectives> make_device_collectives(DeviceLibrary& library, std::shared_ptr<DeviceWorkspace> workspace,
                                                           CollectiveContext& context, const PlanRules& rules,
                                                           const std::string& gpu_transport) {
  DeviceAgreement agreement = agree_on_transport(exchange_peers(library, workspace->device(), context, gpu_transport));
  if (!agreement.error.empty()) throw InternalError(agreement.error);
  return std::make_unique<NcclOrHost>(library, std::move(workspace), context, rules, std::move(agreement));
}

}  // namespace hvd
