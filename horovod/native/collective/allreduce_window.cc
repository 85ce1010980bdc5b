// Allreduce through memory that all ranks share.
//
// Each rank's area of the window has slots that steps use in turn:
//
//   slot := result contribution[n]      the result of this rank's slice, and this rank's contribution to each slice
//
// A rank packs its contributions to step s, reduces its slice of step s-1 from all ranks' slots, and copies the results of step
// s-2 from them. A window counter for each of the three tells the other ranks its progress. A slot is used again kSlots steps
// later, so ranks may drift that far apart before one waits. CPU data moves in pieces that fit the caches. GPUs write their
// rank's slots and read all ranks' slots, and the CPU reduces codes to codes.
#include <algorithm>
#include <vector>

#include "base/memory.h"
#include "collective/allreduce.h"
#include "collective/steps.h"

namespace hvd {
namespace {

constexpr int64_t kWindowStepBytes = 512 << 10;  // of the tensors: half of a core's L2 cache
// A GPU's steps are as large as slots allow, but a small bucket is cut into several steps, so that its stages overlap.
constexpr int64_t kFewSteps = 8;
constexpr int64_t kLeastMessage = int64_t{64} << 10;

class WindowAllreduce {
 public:
  WindowAllreduce(CollectiveContext& context, const Steps& steps, TensorMemory& memory)
      : context_(context),
        steps_(steps),
        memory_(memory),
        window_(*context.group.window()),
        rank_(context.group.rank()),
        size_(context.group.size()),
        gather_(steps.gather()),
        reads_own_in_place_(steps.bucket(0).reduction().codec == nullptr && !memory.is_elsewhere()),
        base_(window_.steps) {}

  static size_t slot_bytes(const Window& window) { return window.area_bytes() / kSlots / kAlign * kAlign; }
  bool fits() const {
    const size_t contributions = gather_ ? 0 : steps_.most_bytes();
    return contributions + aligned(steps_.largest_message()) <= slot_bytes(window_);
  }

  void run() {
    memory_.begin({&steps_, 1}, rank_);
    const uint32_t lag = memory_.lag();
    run_pipeline(steps_.count(), {{0, [this](uint32_t step) { pack(step); }},
                                  {lag, [this](uint32_t step) { end_packing(step); }},
                                  {1, [this](uint32_t step) { reduce(step); }},
                                  {2, [this](uint32_t step) { collect(step); }},
                                  {2 + lag, [this](uint32_t step) { leave(step); }}});
    window_.steps += steps_.count();
  }

 private:
  static constexpr int kPacked = 0, kReduced = 1, kDone = 2;  // counters of the window
  static constexpr uint32_t kSlots = 4;                       // a power of two; more than the last stage lags behind the first

  uint32_t target(uint32_t step) const { return base_ + step + 1; }  // a counter's value when the step is done

  void await_all(int counter, uint32_t value) {
    for (int r = 0; r < size_; ++r) {
      if (r != rank_) window_.await(r, counter, value);
    }
  }

  std::byte* slot(int rank, uint32_t step) const { return window_.area(rank) + (base_ + step) % kSlots * slot_bytes(window_); }

  // The address of `rank`'s contribution to a slice.
  std::byte* contribution(int rank, uint32_t step, int slice) const {
    if (gather_) return slot(rank, step);
    const size_t result = aligned(steps_.bytes(step, rank));
    return slot(rank, step) + result + steps_.offset(step, slice);
  }

  void pack(uint32_t step) {
    await_all(kDone, target(step) - kSlots);  // all ranks have left the slot's previous step
    memory_.send(step, contribution(rank_, step, 0), !gather_ && reads_own_in_place_ ? rank_ : Steps::kNobody);
    for (int slice = 0; slice < static_cast<int>(steps_.buckets()); ++slice) {
      if (gather_ || slice != rank_) context_.wire_bytes += static_cast<int64_t>(steps_.bytes(step, slice));
    }
  }

  void end_packing(uint32_t step) {
    memory_.await_sent(step);
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
    const auto bucket = static_cast<size_t>(slice);
    if (gather_) {
      memory_.reduce(step, 0, bucket, messages, true, nullptr);
    } else {
      memory_.reduce(step, 0, bucket, messages, reads_own_in_place_, slot(rank_, step));
      context_.wire_bytes += static_cast<int64_t>(steps_.bytes(step, rank_));
    }
    window_.advance(kReduced);
  }

  // With a codec the owner also takes the decoded result, so that all ranks have the same bits.
  void collect(uint32_t step) {
    const int done = reads_own_in_place_ ? rank_ : Steps::kNobody;
    for (int r = 0; r < size_ && !gather_; ++r) {
      if (r != rank_) window_.await(r, kReduced, target(step));
      memory_.receive(step, 0, r, r, slot(r, step), done);
    }
  }

  void leave(uint32_t step) {
    memory_.await_received(step);
    window_.advance(kDone);
  }

  CollectiveContext& context_;
  const Steps& steps_;
  TensorMemory& memory_;
  Window& window_;
  const int rank_, size_;
  const bool gather_;
  const bool reads_own_in_place_;
  const uint32_t base_;
};

int64_t elements_in_step(std::span<const BucketTensor> tensors, const BucketReduction& reduction, const Window& window,
                         int size, int slices, bool is_elsewhere) {
  if (!is_elsewhere) {
    return std::max<int64_t>(1, kWindowStepBytes / static_cast<int64_t>(size_of(reduction.dtype)) / slices);
  }
  const auto slot = static_cast<int64_t>(WindowAllreduce::slot_bytes(window));
  return std::min(elements_of(slot / (size + 1) * 7 / 8, reduction),
                  std::max(elements_of(kLeastMessage, reduction), count_of(tensors) / size / kFewSteps));
}

}  // namespace

int64_t allreduce_through_window(const RouteParts& parts, std::span<const BucketTensor> tensors,
                                 const BucketReduction& reduction, bool gather) {
  CollectiveContext& context = parts.context;
  TensorMemory& memory = parts.memory;
  Window& window = *context.group.window();
  const int size = context.group.size(), slices = gather ? 1 : size;
  memory.open(window, size);
  int64_t elements = elements_in_step(tensors, reduction, window, size, slices, memory.is_elsewhere());
  // Codes of very small tensors take more room than codes of large ones: halve the steps until they fit.
  for (;; elements /= 2) {
    const Steps steps(slices_of(tensors, reduction, slices, gather ? kNoPart : context.group.rank(), claims_of(memory)), size,
                      gather, elements);
    if (steps.count() == 0) return 0;
    context.enter(Phase::kCommunicate);  // the steps overlap, so packing, reducing and unpacking are one phase
    WindowAllreduce allreduce(context, steps, memory);
    if (allreduce.fits()) {
      allreduce.run();
      return memory.saturated();
    }
    // Happens only with very many ranks.
    if (elements < Layout::kRun / 2) return allreduce_by_exchange(parts, tensors, reduction, gather);
  }
}

}  // namespace hvd
