// Allreduce through memory that all ranks see.
//
// The bucket is cut into steps, and each rank's area of the window into slots that steps use in turn:
//
//   slot := result contribution[n]      results of this rank's part, and what this rank contributes to each part
//
// A rank packs its contributions to step s, then reduces its part of step s-1 from everybody's slots, then copies the
// results of step s-2 out of theirs. A counter for each of the three tells the others how far it is; since a slot comes up
// again only kSlots steps later, ranks may drift apart that far before anyone waits. All data moves in pieces that stay in
// the caches.
#include <algorithm>
#include <vector>

#include "collective/allreduce.h"

namespace hvd {
namespace {

constexpr int kPacked = 0, kReduced = 1, kDone = 2;  // counters of the window
constexpr uint32_t kSlots = 4;
constexpr int64_t kStepBytes = 512 << 10;  // of the tensors: half a core's level-2 cache
constexpr size_t kAlign = 64;

constexpr size_t aligned(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

struct Step {
  std::vector<Range> parts;
  std::vector<size_t> bytes;  // of each part's message, aligned
};

class WindowAllreduce {
 public:
  WindowAllreduce(CollectiveContext& context, Bucket& bucket, bool gather)
      : context_(context),
        bucket_(bucket),
        window_(*context.group.window()),
        rank_(context.group.rank()),
        size_(context.group.size()),
        parts_(gather ? 1 : size_),
        gather_(gather),
        reads_own_in_place_(bucket.reduction().codec == nullptr),
        base_(context.window_steps) {
    const int64_t elements = kStepBytes / static_cast<int64_t>(size_of(bucket.reduction().dtype));
    for (int64_t at = 0; at < bucket.count();) {
      const int64_t end = bucket.cut(at + elements);
      Step& step = steps_.emplace_back();
      for (int part = 0; part < parts_; ++part) {
        step.parts.push_back(bucket.part({at, end}, part, parts_));
        step.bytes.push_back(aligned(static_cast<size_t>(bucket.message_bytes(step.parts.back()))));
      }
      at = end;
    }
  }

  void run() {
    const auto count = static_cast<uint32_t>(steps_.size());
    for (uint32_t s = 0; s < count + 2; ++s) {
      if (s < count) pack(s);
      if (s >= 1 && s - 1 < count) reduce(s - 1);
      if (s >= 2) collect(s - 2);
    }
    context_.window_steps += count;
  }

 private:
  uint32_t target(uint32_t step) const { return base_ + step + 1; }  // a counter's value once the step is behind it

  void await_all(int counter, uint32_t value) {
    for (int r = 0; r < size_; ++r) {
      if (r != rank_) window_.await(r, counter, value);
    }
  }

  std::byte* slot(int rank, uint32_t step) const {
    const size_t slot_bytes = window_.area_bytes() / kSlots / kAlign * kAlign;
    return window_.area(rank) + (base_ + step) % kSlots * slot_bytes;
  }

  Range part_of(uint32_t step, int part) const { return steps_[step].parts[static_cast<size_t>(part)]; }

  // Where `rank`'s contribution to a part lies.
  std::byte* contribution(int rank, uint32_t step, int part) const {
    const std::vector<size_t>& bytes = steps_[step].bytes;
    size_t offset = gather_ ? 0 : bytes[static_cast<size_t>(rank)];
    for (int p = 0; p < part; ++p) {
      if (p != rank || !reads_own_in_place_) offset += bytes[static_cast<size_t>(p)];
    }
    return slot(rank, step) + offset;
  }

  void pack(uint32_t step) {
    await_all(kDone, target(step) - kSlots);  // everyone has left the slot's previous step
    for (int part = 0; part < parts_; ++part) {
      const bool is_own = !gather_ && part == rank_;
      if (is_own && reads_own_in_place_) continue;
      const Range range = part_of(step, part);
      bucket_.pack(range, contribution(rank_, step, part));
      if (!is_own) context_.wire_bytes += bucket_.message_bytes(range);
    }
    window_.advance(kPacked);
  }

  void reduce(uint32_t step) {
    const int part = gather_ ? 0 : rank_;
    std::vector<const std::byte*> messages(static_cast<size_t>(size_));
    for (int r = 0; r < size_; ++r) {
      const bool in_place = r == rank_ && reads_own_in_place_;
      messages[static_cast<size_t>(r)] = in_place ? nullptr : contribution(r, step, part);
    }
    await_all(kPacked, target(step));
    const Range range = part_of(step, part);
    if (gather_) {
      bucket_.reduce(range, messages, true, nullptr);
    } else {
      // With a codec the owner, like everyone else, takes what the encoded result decodes to.
      std::byte* result = slot(rank_, step);
      bucket_.reduce(range, messages, reads_own_in_place_, result);
      if (!reads_own_in_place_) bucket_.unpack(range, result);
      context_.wire_bytes += bucket_.message_bytes(range);
    }
    window_.advance(kReduced);
  }

  void collect(uint32_t step) {
    for (int r = 0; r < size_ && !gather_; ++r) {
      if (r == rank_) continue;
      window_.await(r, kReduced, target(step));
      bucket_.unpack(part_of(step, r), slot(r, step));
    }
    window_.advance(kDone);
  }

  CollectiveContext& context_;
  Bucket& bucket_;
  Window& window_;
  const int rank_, size_, parts_;
  const bool gather_;
  const bool reads_own_in_place_;
  const uint32_t base_;
  std::vector<Step> steps_;
};

}  // namespace

void allreduce_through_window(CollectiveContext& context, Bucket& bucket, bool gather) {
  context.enter(Phase::kCommunicate);  // its steps overlap: packing, reducing and unpacking are one phase
  WindowAllreduce(context, bucket, gather).run();
}

}  // namespace hvd
