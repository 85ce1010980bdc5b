#include "collective/host_level.h"

#include <algorithm>
#include <optional>

#include "base/memory.h"
#include "collective/plan.h"
#include "collective/wire.h"

namespace hvd {
namespace {

// A rank's area of the host's window has slots:
//
//   area := send_buffer[kSendBuffers] receive_buffer[kReceiveBuffers]
class WindowLevel final : public HostLevel {
 public:
  explicit WindowLevel(const CollectiveContext& context)
      : context_(context),
        window_(*context.group.host_window()),
        send_bytes_(window_.area_bytes() / 2 / kSendBuffers / kAlign * kAlign),
        receive_bytes_(window_.area_bytes() / 2 / kReceiveBuffers / kAlign * kAlign),
        base_(window_.steps) {
    static_assert(kReceiveBuffers >= RankWire::kMostLag + 3);
  }

  // As many elements as fit the slots, less an eighth for the alignment of messages and the rounding of ranges to blocks.
  int64_t elements_per_bucket(const HostRole& role, const TensorMemory& memory, const BucketReduction& reduction,
                              bool gather) const override {
    const int64_t buckets = gather ? 1 : role.hosts;
    const auto send_buffer = static_cast<int64_t>(send_bytes_), receive_buffer = static_cast<int64_t>(receive_bytes_);
    const int64_t by_sends = memory.elements_in_send_buffer(send_buffer / (role.carriers * buckets), reduction);
    return std::min(by_sends, elements_of(receive_buffer / role.hosts, reduction)) * 7 / 8;
  }

  bool begin(const HostSteps& steps) override {
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
  void end() override {
    for (uint32_t step = 0; !steps_->role.carries() && step < steps_->count; ++step) {
      window_.advance(kTaken);
      window_.advance(kPublished);
    }
    window_.steps += steps_->count;
  }

  // Waits until the carriers are done with the slot's previous step.
  void await_room(uint32_t step) override { await(steps_->role.carriers, kTaken, target(step) - kSendBuffers); }

  std::byte* send_buffer(uint32_t step, int slice) override {
    const int rank = steps_->role.local_rank;
    return window_.area(rank) + (base_ + step) % kSendBuffers * send_bytes_ + steps_->send_offset(step, slice, rank);
  }

  void sent(uint32_t) override { window_.advance(kSent); }
  void await_sent(uint32_t step) override { await(locals(), kSent, target(step)); }

  std::byte* send_buffer_of(int local_rank, uint32_t step) override {
    return window_.area(local_rank) + (base_ + step) % kSendBuffers * send_bytes_ +
           steps_->send_offset(step, steps_->role.local_rank, local_rank);
  }

  void taken() override { window_.advance(kTaken); }
  // Waits until all ranks have left the slot's previous step.
  void await_receive_buffer(uint32_t step) override { await(locals(), kCollected, target(step) - kReceiveBuffers); }

  std::byte* receive_buffer(int carrier, uint32_t step) override {
    return window_.area(carrier) + kSendBuffers * send_bytes_ + (base_ + step) % kReceiveBuffers * receive_bytes_;
  }

  void publish(uint32_t) override {
    if (steps_->role.carries()) window_.advance(kPublished);
  }

  void await_published(uint32_t step, int carrier) override {
    context_.enter(Phase::kCommunicate);
    if (carrier != steps_->role.local_rank) window_.await(carrier, kPublished, target(step));
  }

  void collected() override { window_.advance(kCollected); }

 private:
  static constexpr int kSent = 0, kTaken = 1, kPublished = 2, kCollected = 3;  // counters of the window
  // Powers of two, so that the slots stay in order when the count of steps wraps around at 2^32.
  static constexpr uint32_t kSendBuffers = 4, kReceiveBuffers = 16;

  uint32_t target(uint32_t step) const { return base_ + step + 1; }  // a counter's value when the step is done

  // Waits for the host's first `count` ranks.
  void await(int count, int counter, uint32_t value) {
    context_.enter(Phase::kCommunicate);
    for (int r = 0; r < count; ++r) {
      if (r != steps_->role.local_rank) window_.await(r, counter, value);
    }
  }

  int locals() const { return static_cast<int>(steps_->role.locals.size()); }

  const CollectiveContext& context_;
  Window& window_;
  const size_t send_bytes_, receive_bytes_;  // of a slot
  const uint32_t base_;
  std::optional<HostSteps> steps_;
};

}  // namespace

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

std::unique_ptr<HostLevel> make_window_level(const CollectiveContext& context) {
  return std::make_unique<WindowLevel>(context);
}

}  // namespace hvd
