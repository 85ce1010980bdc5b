// CPU-reduce by messages: Crossing (collective/crossing.h) between rings of pinned memory, which GPUs fill and empty.
#include <algorithm>
#include <chrono>
#include <numeric>
#include <vector>

#include "base/alignment.h"
#include "collective/crossing.h"
#include "collective/device/host_allreduce.h"
#include "collective/device/host_lanes.h"
#include "collective/slices.h"

namespace hvd {
namespace {

// Steps whose messages have memory on the host: those that travel, and those that GPUs copy.
constexpr uint32_t kExchangeSlots = Crossing::kLag + 3;

}  // namespace

int64_t host_allreduce_by_exchange(HostWorkspace& workspace, std::span<const BucketTensor> tensors,
                                   const BucketReduction& reduction) {
  CollectiveContext& context = workspace.context;
  const int size = context.group.size(), rank = context.group.rank();
  const Steps steps(slices_of(tensors, reduction, size, rank, context.simd, *context.tiles), size, false,
                    elements_of(message_bytes_among(size), reduction));
  if (steps.count() == 0) return 0;
  const size_t slot_bytes = aligned(steps.most_bytes());
  const DeviceMemory memory = workspace.pinned.take(2 * kExchangeSlots * slot_bytes);
  auto packed = [&](uint32_t step) { return memory.get() + step % kExchangeSlots * slot_bytes; };
  auto landing = [&](uint32_t step) { return memory.get() + (kExchangeSlots + step % kExchangeSlots) * slot_bytes; };
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  Crossing crossing(context, steps, std::move(ranks), rank,
                    {.landing = landing, .packed = packed, .keep_alive = memory, .has_destinations = false});
  HostLanes lanes(workspace, {&steps}, reduction.prescale);

  auto send = [&](uint32_t step) { lanes.send(step, packed(step)); };
  auto contribute = [&](uint32_t step) {
    lanes.await_sent(step);
    crossing.contribute(step);
  };
  auto reduce = [&](uint32_t step) {
    crossing.await_contributions(step);
    const auto begin = std::chrono::steady_clock::now();
    crossing.reduce(step);
    workspace.stopwatch.add_since(&HostTimes::reduce, begin);
  };
  auto receive = [&](uint32_t step) {
    crossing.arrive(step);
    lanes.begin_receiving(step);
    lanes.receive(step, 0, landing(step), lanes.bytes(step));
    lanes.end_receiving(step);
  };
  auto leave = [&](uint32_t step) { lanes.await_received(step); };
  constexpr uint32_t kLag = Crossing::kLag;
  run_pipeline(steps.count(), {{0, send}, {1, contribute}, {1 + kLag, reduce}, {1 + 2 * kLag, receive}, {2 + 2 * kLag, leave}});
  lanes.finish();
  return steps.saturated();
}

}  // namespace hvd
