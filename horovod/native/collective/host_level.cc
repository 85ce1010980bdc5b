#include "collective/host_level.h"

#include <algorithm>

#include "base/memory.h"
#include "collective/plan.h"
#include "collective/wire.h"

namespace hvd {

HostRole::HostRole(const CollectiveContext& context)
    : hosts(static_cast<int>(context.group.hosts().size())),
      carriers(carriers_of(context.group.hosts(), context.messages.carriers)) {
  const RankGroup& group = context.group;
  for (const std::vector<int>& ranks : group.hosts()) {
    const auto found = std::find(ranks.begin(), ranks.end(), group.rank());
    if (found == ranks.end()) continue;
    host = static_cast<int>(&ranks - group.hosts().data());
    local_rank = static_cast<int>(found - ranks.begin());
    locals = ranks;
  }
  if (!carries()) return;
  for (const std::vector<int>& ranks : group.hosts()) parties.push_back(ranks[static_cast<size_t>(local_rank)]);
}

size_t HostSteps::slice_bytes(uint32_t step, int slice) const {
  const Steps& of = slices[static_cast<size_t>(slice)];
  return memory.send_offset(of, step, of.buckets());
}

size_t HostSteps::send_offset(uint32_t step, int slice, int rank) const {
  size_t offset = 0;
  for (int before = 0; before < slice; ++before) {
    if (is_sent(before, rank)) offset += aligned(slice_bytes(step, before));
  }
  return offset;
}

size_t HostSteps::receive_bytes(uint32_t step, int slice) const {
  const Steps& of = slices[static_cast<size_t>(slice)];
  return of.offset(step, of.parties());
}

WindowLevel::WindowLevel(const CollectiveContext& context)
    : context_(context),
      window_(*context.group.host_window()),
      send_bytes_(window_.area_bytes() / 2 / kSendBuffers / kAlign * kAlign),
      receive_bytes_(window_.area_bytes() / 2 / kReceiveBuffers / kAlign * kAlign),
      base_(window_.steps) {
  static_assert(kReceiveBuffers >= RankWire::kMostLag + 3);
}

// As many elements as fit the slots, less an eighth for the alignment of messages and the rounding of ranges to blocks.
int64_t WindowLevel::elements_per_bucket(const HostRole& role, const TensorMemory& memory, const BucketReduction& reduction,
                                         bool gather) const {
  const int64_t buckets = gather ? 1 : role.hosts;
  const auto send_buffer = static_cast<int64_t>(send_bytes_), receive_buffer = static_cast<int64_t>(receive_bytes_);
  const int64_t by_sends = memory.elements_in_send_buffer(send_buffer / (role.carriers * buckets), reduction);
  return std::min(by_sends, elements_of(receive_buffer / role.hosts, reduction)) * 7 / 8;
}

bool WindowLevel::begin(const HostSteps& steps) {
  steps_.emplace(steps);
  const int carriers = steps.role.carriers;
  for (uint32_t step = 0; step < steps.count; ++step) {
    if (steps.send_offset(step, carriers, -1) > send_bytes_) return false;
    for (int slice = 0; slice < carriers; ++slice) {
      if (steps.receive_bytes(step, slice) > receive_bytes_) return false;
    }
  }
  steps.memory.open(window_, locals());
  return true;
}

// If settings change, this rank may carry in the next operation. Its counters must then equal those of the other ranks.
void WindowLevel::end() {
  for (uint32_t step = 0; !steps_->role.carries() && step < steps_->count; ++step) {
    window_.advance(kTaken);
    window_.advance(kPublished);
  }
  window_.steps += steps_->count;
}

// Waits for the host's first `count` ranks.
void WindowLevel::await(int count, int counter, uint32_t value) {
  context_.enter(Phase::kCommunicate);
  for (int r = 0; r < count; ++r) {
    if (r != steps_->role.local_rank) window_.await(r, counter, value);
  }
}

// Waits until the carriers are done with the slot's previous step.
void WindowLevel::await_room(uint32_t step) { await(steps_->role.carriers, kTaken, target(step) - kSendBuffers); }

std::byte* WindowLevel::send_buffer(uint32_t step, int slice) {
  const int rank = steps_->role.local_rank;
  return window_.area(rank) + (base_ + step) % kSendBuffers * send_bytes_ + steps_->send_offset(step, slice, rank);
}

void WindowLevel::await_sent(uint32_t step) { await(locals(), kSent, target(step)); }

std::byte* WindowLevel::send_buffer_of(int local_rank, uint32_t step) {
  return window_.area(local_rank) + (base_ + step) % kSendBuffers * send_bytes_ +
         steps_->send_offset(step, steps_->role.local_rank, local_rank);
}

// Waits until all ranks have left the slot's previous step.
void WindowLevel::await_receive_buffer(uint32_t step) { await(locals(), kCollected, target(step) - kReceiveBuffers); }

std::byte* WindowLevel::receive_buffer(int carrier, uint32_t step) {
  return window_.area(carrier) + kSendBuffers * send_bytes_ + (base_ + step) % kReceiveBuffers * receive_bytes_;
}

void WindowLevel::publish(uint32_t) {
  if (steps_->role.carries()) window_.advance(kPublished);
}

void WindowLevel::await_published(uint32_t step, int carrier) {
  context_.enter(Phase::kCommunicate);
  if (carrier != steps_->role.local_rank) window_.await(carrier, kPublished, target(step));
}

}  // namespace hvd
