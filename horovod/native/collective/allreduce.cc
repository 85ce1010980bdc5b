#include "collective/allreduce.h"

#include <algorithm>
#include <numeric>

#include "collective/allreduce_patterns.h"
#include "collective/host_level.h"
#include "collective/message_reduction.h"
#include "collective/steps.h"
#include "collective/tensor_memory.h"

namespace hvd {

PlanFacts facts_of(const RankGroup& group, int most_carriers) {
  PlanFacts facts = {.ranks = group.size(),
                     .hosts = static_cast<int>(group.hosts().size()),
                     .carriers = carriers_of(group.hosts(), most_carriers),
                     .shares_memory = group.window() != nullptr,
                     .has_host_windows = group.host_window() != nullptr};
  for (const std::vector<int>& host : group.hosts()) {
    facts.most_on_a_host = std::max(facts.most_on_a_host, static_cast<int>(host.size()));
  }
  return facts;
}

PlanFacts facts_of(const CollectiveContext& context, std::span<const BucketTensor> tensors, const BucketReduction& reduction) {
  PlanFacts facts = facts_of(context.group, context.messages.carriers);
  facts.is_encoded = reduction.codec != nullptr;
  facts.sums_can_travel =
      reduction.codec == nullptr && reduction.prescale == 1.0 && accumulator_size(reduction.dtype) == size_of(reduction.dtype);
  facts.dtype = reduction.dtype;
  facts.op = reduction.op;
  for (const BucketTensor& tensor : tensors) {
    const int64_t bytes = tensor.count * static_cast<int64_t>(size_of(reduction.dtype));
    facts.bytes += bytes;
    facts.wire_bytes += reduction.codec ? reduction.codec->encoded_bytes(tensor.count) : bytes;
  }
  return facts;
}

int64_t allreduce(CollectiveContext& context, std::span<const BucketTensor> tensors, const BucketReduction& reduction,
                  const Route& route) {
  if (route.pattern == Pattern::kAlone) {
    const Layout all({tensors.begin(), tensors.end()}, reduction);
    Bucket(all, context.simd, *context.tiles).reduce_alone();
    return 0;
  }
  CpuTensors memory(context);
  return allreduce_in_host_memory(context, tensors, reduction, route, memory);
}

int64_t allreduce_in_host_memory(CollectiveContext& context, std::span<const BucketTensor> tensors,
                                 const BucketReduction& reduction, const Route& route, TensorMemory& memory) {
  RankWire wire(context);
  const auto level = route.is_hierarchical() ? make_window_level(context) : nullptr;
  return pattern_of(route).run({context, memory, wire, level.get()}, tensors, reduction, route.gathers());
}

// By messages: for ranks without shared memory, and for GPUs over NCCL.
int64_t allreduce_by_exchange(const RouteParts& parts, std::span<const BucketTensor> tensors, const BucketReduction& reduction,
                              bool gather) {
  TensorMemory& memory = parts.memory;
  Wire& wire = parts.wire;
  const int size = parts.context.group.size(), rank = parts.context.group.rank();
  const Steps steps(slices_of(tensors, reduction, gather ? 1 : size, gather ? kNoPart : rank, claims_of(memory)), size, gather,
                    elements_of(wire.message_bytes(size), reduction));
  if (steps.count() == 0) return 0;
  memory.begin({&steps, 1}, rank);
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  MessageReduction by_messages(parts, steps, std::move(ranks), rank, {});
  auto send = [&](uint32_t step) { by_messages.send(step); };
  auto contribute = [&](uint32_t step) {
    memory.await_sent(step);
    by_messages.contribute(step);
  };
  auto reduce = [&](uint32_t step) { by_messages.reduce(step); };
  auto collect = [&](uint32_t step) {
    by_messages.arrive(step);
    parts.context.enter(gather ? Phase::kReduce : Phase::kUnpack);
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

int64_t reducescatter(const RouteParts& parts, std::vector<Layout> slices) {
  TensorMemory& memory = parts.memory;
  Wire& wire = parts.wire;
  const int size = parts.context.group.size(), rank = parts.context.group.rank();
  const int64_t elements = elements_of(wire.message_bytes(size), slices.front().reduction());
  const Steps steps(std::move(slices), size, false, elements);
  memory.begin({&steps, 1}, rank);
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  MessageReduction by_messages(parts, steps, std::move(ranks), rank, {.sends_results = false});
  run_pipeline(steps.count(), {{0, [&](uint32_t step) { by_messages.contribute(step); }},
                               {wire.lag(), [&](uint32_t step) { by_messages.reduce(step); }}});
  return memory.saturated();
}

}  // namespace hvd
