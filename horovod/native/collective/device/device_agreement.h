// What the ranks of a process set tell each other about their GPUs, and what follows from it on every one of them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "collective/context.h"
#include "device/device_library.h"

namespace hvd {

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
  std::string why;    // if not
  std::string error;  // what was asked for and cannot be; empty: nothing
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

}  // namespace hvd
