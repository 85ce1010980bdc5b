#include "collective/device/gpu_backend.h"

#include "base/error.h"
#include "collective/allreduce.h"
#include "collective/device/host_backend.h"
#include "collective/device/nccl_backend.h"

namespace hvd {
namespace {

// Of a set of one rank: nothing is carried.
class LoneGpuBackend final : public GpuBackend {
 public:
  using GpuBackend::GpuBackend;

  void allreduce(std::span<const BucketTensor> tensors, const BucketReduction& reduction, const Route&) override {
    allreduce_alone(*workspace_, tensors, reduction);
  }
  void adasum(std::span<const BucketTensor> tensors, const BucketReduction& reduction) override {
    allreduce_alone(*workspace_, tensors, reduction);
  }
  void reducescatter(std::vector<std::vector<BucketTensor>> by_rank, const BucketReduction& reduction, const Route&) override {
    allreduce_alone(*workspace_, by_rank.front(), reduction);
  }
  void broadcast(int, void*, size_t) override {}
  void move(const Movement& movement) override {
    copy(movement.destination + movement.received.front().offset, movement.source + movement.sent.front().offset,
         movement.sent.front().bytes);
  }
};

}  // namespace

PlanFacts GpuBackend::facts(std::span<const BucketTensor> tensors, const BucketReduction& reduction) const {
  PlanFacts facts = facts_of(context_.group, tensors, reduction);
  facts.on_gpu = true;
  facts.has_nccl = agreement_.has_nccl;
  facts.why_no_nccl = agreement_.why;
  return facts;
}

std::unique_ptr<GpuBackend> open_gpu_backend(DeviceLibrary& library, std::shared_ptr<DeviceWorkspace> workspace,
                                             CollectiveContext& context, const PlanRules& rules,
                                             const std::string& gpu_transport) {
  DeviceAgreement agreement = agree_on_transport(exchange_peers(library, workspace->device(), context, gpu_transport));
  if (!agreement.error.empty()) throw InternalError(agreement.error);
  const bool has_nccl = agreement.has_nccl;
  GpuBackend::Common common{std::move(workspace), context, rules, std::move(agreement)};
  if (context.group.size() == 1) return std::make_unique<LoneGpuBackend>(std::move(common));
  if (has_nccl) return std::make_unique<NcclBackend>(std::move(common), library);
  return std::make_unique<HostBackend>(std::move(common));
}

}  // namespace hvd
