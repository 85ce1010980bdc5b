// Allreduce around a ring of ranks, ordered by host, so that each host sends to one host and receives from one.
//
// Every slice goes round twice. The first time, each rank adds its contribution to the sum; the slice's owner comes last. The
// second time, the result goes to all ranks. A hop is a message to the next rank:
//
//   hop    0          1 .. n-2           n-1                        n .. 2n-3
//   sends  its own    a sum and its own  the result that it owns    a result that has arrived
//
// In every hop, rank `place` sends the slice (place - hop - 1) mod n. So the sum starts at the rank behind the owner and
// follows the ring: each slice has another order, which is the same in every run.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "base/memory.h"
#include "collective/allreduce.h"
#include "collective/bucket.h"
#include "collective/steps.h"

namespace hvd {
namespace {

class RingAllreduce {
 public:
  RingAllreduce(CollectiveContext& context, const Steps& steps, const std::vector<int>& ring, int place)
      : context_(context),
        steps_(steps),
        size_(static_cast<int>(ring.size())),
        place_(place),
        next_(ring[static_cast<size_t>((place + 1) % size_)]),
        previous_(ring[static_cast<size_t>((place + size_ - 1) % size_)]),
        message_bytes_(aligned(steps.largest_message())) {
    for (size_t i = 0; i < steps.buckets(); ++i) buckets_.emplace_back(steps.bucket(i), context.simd, *context.tiles);
    const auto made = static_cast<size_t>(size_), hops = static_cast<size_t>(last_hop() + 1);
    memory_ = context_.send.at_least((made * kMadeSlots + hops * kArrivedSlots) * message_bytes_);
    arrived_ = memory_ + made * kMadeSlots * message_bytes_;
    tickets_.resize(hops);
  }

  void run() {
    std::vector<PipelineStage> stages;
    for (int hop = 0; hop <= last_hop() + 1; ++hop) {
      stages.push_back({static_cast<uint32_t>(hop) * kLag, [this, hop](uint32_t step) { pass_on(step, hop); }});
    }
    run_pipeline(steps_.count(), stages);
  }

 private:
  static constexpr uint32_t kLag = 2;  // steps between two hops
  // The sums that a hop computes are in transit until the next hop. Arrived data is read in the next hop, and may be in transit
  // until the hop after it.
  static constexpr uint32_t kMadeSlots = kLag + 1, kArrivedSlots = 2 * kLag + 1;

  int last_hop() const { return 2 * size_ - 3; }
  int slice(int hop) const { return (place_ - hop - 1 + 2 * size_) % size_; }
  std::byte* made(uint32_t step, int hop) const {
    return memory_ + (static_cast<size_t>(hop) * kMadeSlots + step % kMadeSlots) * message_bytes_;
  }
  std::byte* arrived(uint32_t step, int hop) const {
    return arrived_ + (static_cast<size_t>(hop) * kArrivedSlots + step % kArrivedSlots) * message_bytes_;
  }
  std::optional<Ticket>& ticket(uint32_t step, int hop) { return tickets_[static_cast<size_t>(hop)][step % kMadeSlots]; }

  void pass_on(uint32_t step, int hop) {
    if (hop > 0) {
      context_.enter(Phase::kCommunicate);
      context_.group.finish(*std::exchange(ticket(step, hop - 1), std::nullopt));
    }
    const std::byte* message = message_of(step, hop);
    context_.group.progress();
    if (hop > last_hop()) return;
    const size_t bytes = steps_.bytes(step, slice(hop)), coming = steps_.bytes(step, slice(hop + 1));
    const std::array outgoing{Outgoing{next_, message, bytes}};
    const std::array incoming{Incoming{previous_, arrived(step, hop), coming}};
    context_.wire_bytes += static_cast<int64_t>(bytes);
    ticket(step, hop) = context_.group.start(outgoing, incoming, context_.send.memory());
  }

  // The message that this rank sends in the hop; after the last hop, the last arrived result.
  const std::byte* message_of(uint32_t step, int hop) {
    const auto which = static_cast<size_t>(slice(hop));
    Bucket& bucket = buckets_[which];
    const Range range = steps_.range(step, which);
    if (hop >= size_) {
      context_.enter(Phase::kUnpack);
      const std::byte* result = arrived(step, hop - 1);
      bucket.unpack(range, result);
      return result;
    }
    context_.enter(hop == 0 ? Phase::kPack : Phase::kReduce);
    std::byte* message = made(step, hop);
    if (hop == 0) {
      bucket.pack(range, message);
    } else {
      const std::array<const std::byte*, 2> sum_and_own{arrived(step, hop - 1), nullptr};
      bucket.reduce(range, sum_and_own, hop == size_ - 1, message);
    }
    return message;
  }

  CollectiveContext& context_;
  const Steps& steps_;
  std::vector<Bucket> buckets_;
  const int size_, place_;
  const int next_, previous_;  // ranks of the group
  const size_t message_bytes_;
  std::byte *memory_ = nullptr, *arrived_ = nullptr;
  std::vector<std::array<std::optional<Ticket>, kMadeSlots>> tickets_;  // by hop
};

}  // namespace

int64_t allreduce_around_ring(const RouteParts& parts, std::span<const BucketTensor> tensors, const BucketReduction& reduction,
                              bool) {
  CollectiveContext& context = parts.context;
  std::vector<int> ring;
  for (const std::vector<int>& host : context.group.hosts()) ring.insert(ring.end(), host.begin(), host.end());
  const int size = context.group.size();
  const auto place = std::find(ring.begin(), ring.end(), context.group.rank()) - ring.begin();
  BucketReduction passing = reduction;
  passing.scale = {};  // only the owner scales
  auto slices = slices_of(tensors, passing, size, kNoPart, claim_on_cpu);
  auto& own = slices[static_cast<size_t>(place)];
  own = std::move(slices_of(tensors, reduction, size, kNoPart, claim_on_cpu)[static_cast<size_t>(place)]);
  const Steps steps(std::move(slices), size, false, elements_of(kPromptBytes, reduction));
  RingAllreduce(context, steps, ring, static_cast<int>(place)).run();
  return 0;
}

}  // namespace hvd
