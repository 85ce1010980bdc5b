// Allreduce by messages, for ranks that share no memory, and between GPUs.
#include <algorithm>
#include <numeric>

#include "collective/allreduce.h"
#include "collective/message_reduction.h"
#include "collective/slices.h"

namespace hvd {

int64_t allreduce_by_exchange(const Means& means, std::span<const BucketTensor> tensors, const BucketReduction& reduction,
                              bool gather) {
  TensorMemory& memory = means.memory;
  Wire& wire = means.wire;
  const int size = means.context.group.size(), rank = means.context.group.rank();
  const Steps steps(slices_of(tensors, reduction, gather ? 1 : size, gather ? kNoPart : rank, claims_of(memory)), size, gather,
                    elements_of(wire.message_bytes(size), reduction));
  if (steps.count() == 0) return 0;
  memory.begin({&steps, 1}, rank);
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  MessageReduction by_messages(means, steps, std::move(ranks), rank, {});
  auto send = [&](uint32_t step) { by_messages.send(step); };
  auto contribute = [&](uint32_t step) {
    memory.await_sent(step);
    by_messages.contribute(step);
  };
  auto reduce = [&](uint32_t step) { by_messages.reduce(step); };
  auto collect = [&](uint32_t step) {
    by_messages.arrive(step);
    means.context.enter(gather ? Phase::kReduce : Phase::kUnpack);
    memory.receive(step, 0, 0, size - 1, by_messages.receive_buffer(step), by_messages.done());
  };
  auto leave = [&](uint32_t step) { memory.await_received(step); };
  std::vector<PipelineStage> stages;
  uint32_t turn = memory.lag();
  if (memory.is_elsewhere()) stages.push_back({0, send});
  stages.push_back({turn, contribute});
  if (!gather) stages.push_back({turn += wire.lag(), reduce});
  stages.push_back({turn += wire.lag(), collect});
  stages.push_back({turn + memory.lag(), leave});
  run_pipeline(steps.count(), stages);
  return memory.saturated();
}

}  // namespace hvd
