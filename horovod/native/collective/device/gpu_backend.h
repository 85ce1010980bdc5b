// The collectives of GPU tensors, and what ranks agree on before they can carry them out.
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

// What the ranks of a process set tell each other about their GPUs, and what follows from it on every one of them.
struct DevicePeer {
  int rank = 0;     // in the job
  std::string gpu;  // Device::identity(), the same nowhere else in the world
  int nccl_version = 0;
  std::string why_no_nccl;   // if the version is 0
  std::string transport;     // HOROVOD_GPU_TRANSPORT
  std::string out_of_reach;  // a peer's GPU that it sees and cannot access; empty: none

  bool operator==(const DevicePeer&) const = default;
};

struct DeviceAgreement {
  bool has_nccl = false;
  std::string why;  // if not
  Failure error;    // what was asked for and cannot be, if anything
};

// A pure function: of all ranks of the set, by rank.
DeviceAgreement agree_on_transport(const std::vector<DevicePeer>& peers);

// What a rank says of itself, but for `out_of_reach`. Reading throws InternalError for what no rank writes.
std::span<const std::byte> write(const DevicePeer& peer, ByteWriter* writer);
DevicePeer read_peer(std::span<const std::byte> bytes, int rank);

// Collective over the group.
std::vector<DevicePeer> exchange_peers(DeviceLibrary& library, Device& device, const CollectiveContext& context,
                                       const std::string& gpu_transport);
// Every rank's text, by rank. Collective over the group.
std::vector<std::string> exchange_texts(const CollectiveContext& context, const std::string& own);

// ---- backends -------------------------------------------------------------------------------------------------------

// An executor opens one of these for its process set with the first of them. The routes are
// drawn in docs/architecture.md.
//
// Calls return when everything is enqueued on stream(); on the host's route, when the last result is on its way back.
class GpuBackend : public Backend {
 public:
  // The context outlives it.
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
  // Where everything happens: callers' events are awaited by it, and it is what completion is recorded on.
  Stream stream() const { return workspace_->stream(); }

  PlanFacts facts(std::span<const BucketTensor> tensors, const BucketReduction& reduction) const override;
  const PlanRules& rules() const override { return rules_; }
  void force(const Algorithms& algorithms) { rules_.algorithms = algorithms; }  // from the next operation on
  std::string name() const override { return "GPU " + std::to_string(device().index()); }
  void copy(void* to, const void* from, size_t bytes) override {
    if (bytes != 0 && to != from) device().copy(stream(), to, from, bytes);
  }
  int64_t take_saturated() override { return workspace_->kernels().take_saturated(); }

  // Of allreduces on the host's route since the last call.
  virtual HostTimes take_host_times() { return {}; }
  // What has failed on the GPU or between GPUs since; empty while all is well.
  virtual std::string failure() { return ""; }
  // Ends what is under way; for nothing but destruction afterwards.
  virtual void abort() {}

 protected:
  // Constant after construction.
  const std::shared_ptr<DeviceWorkspace> workspace_;
  CollectiveContext& context_;
  PlanRules rules_;
  const DeviceAgreement agreement_;
};

// Collective over the context's group: the ranks tell each other what GPUs they have, and agree on what carries their bytes.
// `gpu_transport` is HOROVOD_GPU_TRANSPORT: "auto", "nccl" or "host"; what cannot be is an InternalError on every rank. The
// workspace is that of all process sets of an engine. The context outlives the result.
std::unique_ptr<GpuBackend> open_gpu_backend(DeviceLibrary& library, std::shared_ptr<DeviceWorkspace> workspace,
                                             CollectiveContext& context, const PlanRules& rules,
                                             const std::string& gpu_transport);

}  // namespace hvd
