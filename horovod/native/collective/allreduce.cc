#include "collective/allreduce.h"

#include <algorithm>
#include <optional>

#include "collective/allreduce_patterns.h"
#include "collective/cpu_tensors.h"
#include "collective/window_level.h"

namespace hvd {

PlanFacts facts_of(const RankGroup& group, std::span<const BucketTensor> tensors, const BucketReduction& reduction) {
  PlanFacts facts = {.ranks = group.size(),
                     .hosts = static_cast<int>(group.hosts().size()),
                     .carriers = carriers_of(group.hosts()),
                     .shares_memory = group.window() != nullptr,
                     .has_host_windows = group.host_window() != nullptr,
                     .is_encoded = reduction.codec != nullptr,
                     .sums_can_travel = reduction.codec == nullptr && reduction.prescale == 1.0 &&
                                        accumulator_size(reduction.dtype) == size_of(reduction.dtype),
                     .dtype = reduction.dtype,
                     .op = reduction.op};
  for (const std::vector<int>& host : group.hosts()) {
    facts.most_on_a_host = std::max(facts.most_on_a_host, static_cast<int>(host.size()));
  }
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
  std::optional<WindowLevel> level;
  if (route.is_hierarchical()) level.emplace(context);
  return pattern_of(route).run({context, memory, wire, level ? &*level : nullptr}, tensors, reduction, route.gathers());
}

}  // namespace hvd
