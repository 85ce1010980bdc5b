// The collectives of GPU tensors, and what ranks must agree on first.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "collective/backend.h"
#include "collective/context.h"
#include "collective/device/device_workspace.h"
#include "collective/device/host_workspace.h"
#include "device/device_library.h"

namespace hvd {

// ---- agreement ------------------------------------------------------------------------------------------------------

// A rank's facts about its GPU, which the ranks of a process set exchange.
struct DevicePeer {
  int rank = 0;     // in the job
  std::string gpu;  // Device::identity(), unique in the world
  int nccl_version = 0;
  std::string why_no_nccl;   // if the version is 0
  std::string transport;     // HOROVOD_GPU_TRANSPORT
  std::string out_of_reach;  // a peer's GPU that this GPU sees but cannot access; empty: none

  bool operator==(const DevicePeer&) const = default;
  // The rank's message about itself.
  static void members(auto& peer, auto visit) { visit(peer.nccl_version, peer.gpu, peer.why_no_nccl, peer.transport); }
};

struct DeviceAgreement {
  bool has_nccl = false;
  std::string why;  // if not
  Failure error;    // set if the setting cannot be fulfilled
};

// A pure function of all ranks of the set, by rank.
DeviceAgreement agree_on_transport(const std::vector<DevicePeer>& peers);

// Collective over the group.
std::vector<DevicePeer> exchange_peers(DeviceLibrary& library, Device& device, const CollectiveContext& context,
                                       const std::string& gpu_transport);
// Returns every rank's text, by rank. Collective over the group.
std::vector<std::string> exchange_texts(const CollectiveContext& context, const std::string& own);

// ---- backends -------------------------------------------------------------------------------------------------------

// An executor opens a GPU backend for its process set before the set's first operation on a GPU.
//
// Calls return when all work is enqueued on stream(); on the host's route, when the last copy of a result is enqueued.
class GpuBackend : public Backend {
 public:
  // The context must outlive the backend.
  struct Common {
    std::shared_ptr<DeviceWorkspace> workspace;
    CollectiveContext& context;
    PlanRules rules;
    DeviceAgreement agreement;
  };
  explicit GpuBackend(Common common)
      : workspace_(std::move(common.workspace)),
        context_(common.context),
        rules_(common.rules),
        agreement_(std::move(common.agreement)) {}

  Device& device() const { return workspace_->device(); }
  // The stream of the operations: it waits for callers' events, and completion is recorded on it.
  Stream stream() const { return workspace_->stream(); }

  PlanFacts facts(std::span<const BucketTensor> tensors, const BucketReduction& reduction) const override;
  const PlanRules& rules() const override { return rules_; }
  void force(const Algorithms& algorithms) { rules_.algorithms = algorithms; }  // from the next operation on
  std::string name() const override { return "GPU " + std::to_string(device().index()); }
  void copy(void* to, const void* from, size_t bytes) override {
    if (bytes != 0 && to != from) device().copy(stream(), to, from, bytes);
  }
  int64_t take_saturated() override { return workspace_->kernels().take_saturated(); }

  // The times of allreduces on the host's route since the last call.
  virtual HostTimes take_host_times() { return {}; }
  // The failure on or between GPUs; empty if there is none.
  virtual std::string failure() { return ""; }
  // Ends work under way. After that only destruction is allowed.
  virtual void abort() {}

 protected:
  // Constant after construction.
  const std::shared_ptr<DeviceWorkspace> workspace_;
  CollectiveContext& context_;
  PlanRules rules_;
  const DeviceAgreement agreement_;
};

// Bytes go through pinned host memory and the CPU's transports; the CPU sums.
std::unique_ptr<GpuBackend> make_host_backend(GpuBackend::Common common);
// NCCL carries bytes. Collective: joins the GPUs, and measures the costs of moving bytes. The library is used only during this
// call.
std::unique_ptr<GpuBackend> make_nccl_backend(GpuBackend::Common common, DeviceLibrary& library);

// Collective over the context's group: ranks exchange facts about their GPUs, and agree on the carrier of their bytes.
// `gpu_transport` is HOROVOD_GPU_TRANSPORT: "auto", "nccl" or "host"; throws InternalError on every rank if it is not possible.
// An engine's process sets share the workspace. The context must outlive the result.
std::unique_ptr<GpuBackend> open_gpu_backend(DeviceLibrary& library, std::shared_ptr<DeviceWorkspace> workspace,
                                             CollectiveContext& context, const PlanRules& rules,
                                             const std::string& gpu_transport);

}  // namespace hvd
