// NCCL between GPUs: messages, the level inside a host, and the costs of moving bytes.
#pragma once

#include <memory>
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
std::unique_ptr<Wire> make_nccl_wire(const NcclContext& nccl);
// The level inside a host by messages between its GPUs.
std::unique_ptr<HostLevel> make_nccl_level(Wire& wire);

// Measures the costs of moving bytes between GPUs. Each GPU copies in its memory and exchanges messages with the next GPU of
// its host; the first GPU of each host does so with the first of the next host. The slowest rank's figures count, on every
// rank. Takes some milliseconds; between hosts at 1 Gbit/s about a tenth of a second. Collective.
GpuCosts measure_gpu(const NcclContext& nccl);

}  // namespace hvd
