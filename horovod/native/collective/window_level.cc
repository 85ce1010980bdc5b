#include "collective/window_level.h"

#include <algorithm>

#include "base/alignment.h"
#include "collective/wire.h"

namespace hvd {

WindowLevel::WindowLevel(const CollectiveContext& context)
    : context_(context),
      window_(*context.group.host_window()),
      deposit_bytes_(window_.area_bytes() / 2 / kDeposits / kAlign * kAlign),
      landing_bytes_(window_.area_bytes() / 2 / kLandings / kAlign * kAlign),
      base_(window_.steps) {
  static_assert(kLandings >= RankWire::kLag + 3);
}

// As many as fit the slots, of which an eighth is left for the alignment of messages and for what blocks add to a range.
int64_t WindowLevel::elements_per_bucket(const HostPlace& place, const TensorMemory& memory, const BucketReduction& reduction,
                                         bool gather) const {
  const int64_t buckets = gather ? 1 : place.hosts;
  const auto deposit = static_cast<int64_t>(deposit_bytes_), landing = static_cast<int64_t>(landing_bytes_);
  const int64_t by_deposit = memory.elements_in_deposit(deposit / (place.carriers * buckets), reduction);
  return std::min(by_deposit, elements_of(landing / place.hosts, reduction)) * 7 / 8;
}

bool WindowLevel::begin(const HostSteps& steps) {
  steps_.emplace(steps);
  const int carriers = steps.place.carriers;
  for (uint32_t step = 0; step < steps.count; ++step) {
    if (steps.deposit_offset(step, carriers, -1) > deposit_bytes_) return false;
    for (int slice = 0; slice < carriers; ++slice) {
      if (steps.landing_bytes(step, slice) > landing_bytes_) return false;
    }
  }
  steps.memory.open(window_, locals());
  return true;
}

// Of the host's first `count` ranks.
void WindowLevel::await(int count, int counter, uint32_t value) {
  context_.enter(Phase::kCommunicate);
  for (int r = 0; r < count; ++r) {
    if (r != steps_->place.local_rank) window_.await(r, counter, value);
  }
}

// Carriers have done with the slot's previous step.
void WindowLevel::await_room(uint32_t step) { await(steps_->place.carriers, kTaken, target(step) - kDeposits); }

std::byte* WindowLevel::deposit(uint32_t step, int slice) {
  const int rank = steps_->place.local_rank;
  return window_.area(rank) + (base_ + step) % kDeposits * deposit_bytes_ + steps_->deposit_offset(step, slice, rank);
}

void WindowLevel::await_deposits(uint32_t step) { await(locals(), kDeposited, target(step)); }

std::byte* WindowLevel::deposit_of(int local_rank, uint32_t step) {
  return window_.area(local_rank) + (base_ + step) % kDeposits * deposit_bytes_ +
         steps_->deposit_offset(step, steps_->place.local_rank, local_rank);
}

// Everybody has left the slot's previous step.
void WindowLevel::await_landing(uint32_t step) { await(locals(), kCollected, target(step) - kLandings); }

std::byte* WindowLevel::landing(int carrier, uint32_t step) {
  return window_.area(carrier) + kDeposits * deposit_bytes_ + (base_ + step) % kLandings * landing_bytes_;
}

void WindowLevel::deliver(uint32_t) {
  if (steps_->place.carries()) window_.advance(kDelivered);
}

void WindowLevel::await_delivery(uint32_t step, int carrier) {
  context_.enter(Phase::kCommunicate);
  if (carrier != steps_->place.local_rank) window_.await(carrier, kDelivered, target(step));
}

}  // namespace hvd
