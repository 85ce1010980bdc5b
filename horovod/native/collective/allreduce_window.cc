// Allreduce through memory that all ranks see.
//
// Each rank's area of the window has slots that steps use in turn:
//
//   slot := result contribution[n]      results of this rank's slice, and what this rank contributes to each slice
//
// A rank packs its contributions to step s, then reduces its slice of step s-1 from everybody's slots, then copies the
// results of step s-2 out of theirs. A counter for each of the three tells the others how far it is; since a slot comes up
// again only kSlots steps later, ranks may drift apart that far before anyone waits. All data moves in pieces that stay in
// the caches.
#include <algorithm>
#include <vector>

#include "base/alignment.h"
#include "collective/allreduce.h"
#include "collective/slices.h"
#include "collective/steps.h"

namespace hvd {
namespace {

constexpr int64_t kWindowStepBytes = 512 << 10;  // of the tensors: half a core's level-2 cache

class WindowAllreduce {
 public:
  WindowAllreduce(CollectiveContext& context, const Steps& steps)
      : context_(context),
        steps_(steps),
        window_(*context.group.window()),
        rank_(context.group.rank()),
        size_(context.group.size()),
        gather_(steps.gather()),
        reads_own_in_place_(steps.bucket(0).reduction().codec == nullptr),
        base_(window_.steps) {}

  bool fits() const {
    const size_t contributions = gather_ ? 0 : steps_.most_bytes();
    return contributions + steps_.largest_message() + kAlign <= slot_bytes();
  }

  void run() {
    run_pipeline(steps_.count(), {{0, [this](uint32_t step) { pack(step); }},
                                  {1, [this](uint32_t step) { reduce(step); }},
                                  {2, [this](uint32_t step) { collect(step); }}});
    window_.steps += steps_.count();
  }

 private:
  static constexpr int kPacked = 0, kReduced = 1, kDone = 2;  // counters of the window
  static constexpr uint32_t kSlots = 4;

  uint32_t target(uint32_t step) const { return base_ + step + 1; }  // a counter's value once the step is behind it

  void await_all(int counter, uint32_t value) {
    for (int r = 0; r < size_; ++r) {
      if (r != rank_) window_.await(r, counter, value);
    }
  }

  size_t slot_bytes() const { return window_.area_bytes() / kSlots / kAlign * kAlign; }
  std::byte* slot(int rank, uint32_t step) const { return window_.area(rank) + (base_ + step) % kSlots * slot_bytes(); }

  // Where `rank`'s contribution to a slice lies; of its own slice, behind the others.
  std::byte* contribution(int rank, uint32_t step, int slice) const {
    if (gather_) return slot(rank, step);
    const size_t result = aligned(steps_.bytes(step, rank));
    return slot(rank, step) + result + steps_.offset(step, slice);
  }

  void pack(uint32_t step) {
    await_all(kDone, target(step) - kSlots);  // everyone has left the slot's previous step
    for (size_t i = 0; i < steps_.buckets(); ++i) {
      const int slice = static_cast<int>(i);
      const bool is_own = !gather_ && slice == rank_;
      if (is_own && reads_own_in_place_) continue;
      steps_.bucket(i).pack(steps_.range(step, i), contribution(rank_, step, slice));
      if (!is_own) context_.wire_bytes += static_cast<int64_t>(steps_.bytes(step, slice));
    }
    window_.advance(kPacked);
  }

  void reduce(uint32_t step) {
    const int slice = gather_ ? 0 : rank_;
    std::vector<const std::byte*> messages(static_cast<size_t>(size_));
    for (int r = 0; r < size_; ++r) {
      const bool in_place = r == rank_ && reads_own_in_place_;
      messages[static_cast<size_t>(r)] = in_place ? nullptr : contribution(r, step, slice);
    }
    await_all(kPacked, target(step));
    Bucket& bucket = steps_.bucket(static_cast<size_t>(slice));
    const Range range = steps_.range(step, static_cast<size_t>(slice));
    if (gather_) {
      bucket.reduce(range, messages, true, nullptr);
    } else {
      // With a codec the owner, like everyone else, takes what the encoded result decodes to.
      std::byte* result = slot(rank_, step);
      bucket.reduce(range, messages, reads_own_in_place_, result);
      if (!reads_own_in_place_) bucket.unpack(range, result);
      context_.wire_bytes += static_cast<int64_t>(steps_.bytes(step, rank_));
    }
    window_.advance(kReduced);
  }

  void collect(uint32_t step) {
    for (int r = 0; r < size_ && !gather_; ++r) {
      if (r == rank_) continue;
      window_.await(r, kReduced, target(step));
      const auto slice = static_cast<size_t>(r);
      steps_.bucket(slice).unpack(steps_.range(step, slice), slot(r, step));
    }
    window_.advance(kDone);
  }

  CollectiveContext& context_;
  const Steps& steps_;
  Window& window_;
  const int rank_, size_;
  const bool gather_;
  const bool reads_own_in_place_;
  const uint32_t base_;
};

}  // namespace

int64_t allreduce_through_window(CollectiveContext& context, std::span<const BucketTensor> tensors,
                                 const BucketReduction& reduction, bool gather) {
  const int size = context.group.size(), slices = gather ? 1 : size;
  const int64_t elements = kWindowStepBytes / static_cast<int64_t>(size_of(reduction.dtype)) / slices;
  const Steps steps(
      slices_of(tensors, reduction, slices, gather ? kNoPart : context.group.rank(), context.simd, *context.tiles), size,
      gather, std::max<int64_t>(elements, 1));
  context.enter(Phase::kCommunicate);  // its steps overlap: packing, reducing and unpacking are one phase
  WindowAllreduce allreduce(context, steps);
  // With very many ranks a step is too large whatever is done.
  if (!allreduce.fits()) return allreduce_by_exchange(context, tensors, reduction, gather);
  allreduce.run();
  return steps.saturated();
}

}  // namespace hvd
