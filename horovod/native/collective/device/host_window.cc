// CPU-reduce inside one host: WindowAllreduce (collective/allreduce_window.cc) with tensors in the memory of GPUs.
//
//   slot := result contribution[n]      results of this rank's slice, and what this rank contributes to each slice
//
// A rank's GPU writes its contributions of step s straight into its slot while the rank reduces its slice of step s-1 from
// everybody's slots, codes to codes, and its GPU reads the results of step s-2 out of theirs.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "base/alignment.h"
#include "collective/device/host_allreduce.h"
#include "collective/device/host_lanes.h"
#include "collective/slices.h"
#include "collective/steps.h"

namespace hvd {
namespace {

constexpr int64_t kFewSteps = 8;  // a small bucket is cut into so many, so that its stages overlap too
constexpr int64_t kLeastMessage = int64_t{64} << 10;

class HostWindowAllreduce {
  static constexpr int kPacked = 0, kReduced = 1, kDone = 2;  // counters of the window
  static constexpr uint32_t kSlots = 4;                       // a power of two; more than the last stage lags behind the first

 public:
  HostWindowAllreduce(HostWorkspace& workspace, const PinnedWindow& pinned, const Steps& steps)
      : context_(workspace.context),
        workspace_(workspace),
        pinned_(pinned),
        window_(pinned.window()),
        steps_(steps),
        lanes_(workspace, {&steps}, steps.bucket(0).reduction().prescale),
        rank_(context_.group.rank()),
        size_(context_.group.size()),
        base_(window_.steps) {}

  static size_t slot_bytes(const PinnedWindow& pinned) { return pinned.area_bytes() / kSlots / kAlign * kAlign; }
  static bool fits(const Steps& steps, const PinnedWindow& pinned) {
    return aligned(steps.largest_message()) + steps.most_bytes() <= slot_bytes(pinned);
  }

  void run() {
    run_pipeline(steps_.count(), {{0, [this](uint32_t step) { send(step); }},
                                  {1, [this](uint32_t step) { reduce(step); }},
                                  {2, [this](uint32_t step) { receive(step); }},
                                  {3, [this](uint32_t step) { leave(step); }}});
    lanes_.finish();
    window_.steps += steps_.count();
  }

 private:
  uint32_t target(uint32_t step) const { return base_ + step + 1; }  // a counter's value once the step is behind it

  void await_all(int counter, uint32_t value) {
    for (int r = 0; r < size_; ++r) {
      if (r != rank_) window_.await(r, counter, value);
    }
  }

  std::byte* slot(int rank, uint32_t step) const { return pinned_.area(rank) + (base_ + step) % kSlots * slot_bytes(pinned_); }
  // Where `rank`'s contributions lie, behind the result of its slice.
  std::byte* contributions(int rank, uint32_t step) const { return slot(rank, step) + aligned(steps_.bytes(step, rank)); }

  void send(uint32_t step) {
    await_all(kDone, target(step) - kSlots);  // everyone has left the slot's previous step
    lanes_.send(step, contributions(rank_, step));
    for (int slice = 0; slice < size_; ++slice) {
      if (slice != rank_) context_.wire_bytes += static_cast<int64_t>(steps_.bytes(step, slice));
    }
  }

  void reduce(uint32_t step) {
    lanes_.await_sent(step);
    window_.advance(kPacked);
    std::vector<const std::byte*> messages;
    for (int r = 0; r < size_; ++r) messages.push_back(contributions(r, step) + steps_.offset(step, rank_));
    await_all(kPacked, target(step));
    const auto begin = std::chrono::steady_clock::now();
    const auto own = static_cast<size_t>(rank_);
    steps_.bucket(own).reduce(steps_.range(step, own), messages, false, slot(rank_, step));
    workspace_.stopwatch.add_since(&HostTimes::reduce, begin);
    context_.wire_bytes += static_cast<int64_t>(steps_.bytes(step, rank_));
    window_.advance(kReduced);
  }

  void receive(uint32_t step) {
    lanes_.begin_receiving(step);
    for (int r = 0; r < size_; ++r) {
      if (r != rank_) window_.await(r, kReduced, target(step));
      lanes_.receive(step, steps_.offset(step, r), slot(r, step), steps_.bytes(step, r));
    }
    lanes_.end_receiving(step);
  }

  void leave(uint32_t step) {
    lanes_.await_received(step);
    window_.advance(kDone);
  }

  CollectiveContext& context_;
  HostWorkspace& workspace_;
  const PinnedWindow& pinned_;
  Window& window_;
  const Steps& steps_;
  HostLanes lanes_;
  const int rank_, size_;
  const uint32_t base_;
};

}  // namespace

PinnedWindow::PinnedWindow(Device& device, Window& window, int ranks) : window_(window) {
  for (int rank = 0; rank < ranks; ++rank) pins_.push_back(device.pin(area(rank), area_bytes()));
}

int64_t host_allreduce_through_window(HostWorkspace& workspace, const PinnedWindow& window,
                                      std::span<const BucketTensor> tensors, const BucketReduction& reduction) {
  CollectiveContext& context = workspace.context;
  const int size = context.group.size();
  const int64_t count = count_of(tensors);
  const auto slot = static_cast<int64_t>(HostWindowAllreduce::slot_bytes(window));
  int64_t elements = std::min(elements_of(slot / (size + 1) * 7 / 8, reduction),
                              std::max(elements_of(kLeastMessage, reduction), count / size / kFewSteps));
  // Codes of very small tensors take more room than those of large ones: shorter steps have it.
  for (; elements >= Bucket::kRun / 4; elements /= 2) {
    const Steps steps(slices_of(tensors, reduction, size, context.group.rank(), context.simd, *context.tiles), size, false,
                      elements);
    if (!HostWindowAllreduce::fits(steps, window)) continue;
    if (steps.count() == 0) return 0;
    context.enter(Phase::kCommunicate);  // its stages overlap: they are one phase
    HostWindowAllreduce(workspace, window, steps).run();
    return steps.saturated();
  }
  return host_allreduce_by_exchange(workspace, tensors, reduction);  // very many ranks
}

}  // namespace hvd
