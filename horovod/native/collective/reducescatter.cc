#include "collective/reducescatter.h"

#include <numeric>

#include "collective/message_reduction.h"

namespace hvd {

int64_t reducescatter(const Means& means, std::vector<Layout> slices) {
  TensorMemory& memory = means.memory;
  Wire& wire = means.wire;
  const int size = means.context.group.size(), rank = means.context.group.rank();
  const int64_t elements = elements_of(wire.message_bytes(size), slices.front().reduction());
  const Steps steps(std::move(slices), size, false, elements);
  memory.begin({&steps, 1}, rank);
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  MessageReduction by_messages(means, steps, std::move(ranks), rank, {.sends_results = false});
  run_pipeline(steps.count(), {{0, [&](uint32_t step) { by_messages.contribute(step); }},
                               {wire.lag(), [&](uint32_t step) { by_messages.reduce(step); }}});
  return memory.saturated();
}

}  // namespace hvd
