// Allreduces on the host's route, by where the ranks are. Tensors are of the GPU, with their residuals of what is sent claimed
// there (BucketTensor::sent). Each returns how many finite values a codec's range cut off on the host.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collective/device/host_workspace.h"

namespace hvd {

// A window's areas, which the GPU copies to and from.
class PinnedWindow {
 public:
  // The window of `ranks` ranks outlives it.
  PinnedWindow(Device& device, Window& window, int ranks);

  Window& window() const { return window_; }
  std::byte* area(int rank) const { return window_.area(rank); }
  size_t area_bytes() const { return window_.area_bytes(); }

 private:
  // Constant after construction.
  Window& window_;
  std::vector<std::shared_ptr<void>> pins_;
};

// One host: codes to codes in the shared window, which nothing is copied into or out of but by GPUs.
int64_t host_allreduce_through_window(HostWorkspace& workspace, const PinnedWindow& window,
                                      std::span<const BucketTensor> tensors, const BucketReduction& reduction);
// By messages between the ranks, out of pinned memory and into it.
int64_t host_allreduce_by_exchange(HostWorkspace& workspace, std::span<const BucketTensor> tensors,
                                   const BucketReduction& reduction);
// Several hosts: in each through its window, between them by messages. What the sum of a host loses in encoding goes to the
// residuals of the rank that carries it.
int64_t host_allreduce_by_hierarchy(HostWorkspace& workspace, const PinnedWindow& window, std::span<const BucketTensor> tensors,
                                    const BucketReduction& reduction);

}  // namespace hvd
