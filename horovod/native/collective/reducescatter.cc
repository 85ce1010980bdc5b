#include "collective/reducescatter.h"

#include <numeric>

#include "collective/cpu_tensors.h"
#include "collective/crossing.h"

namespace hvd {

int64_t reducescatter(CollectiveContext& context, std::vector<Layout> slices) {
  const int size = context.group.size();
  if (size == 1) {
    Bucket(slices.front(), context.simd, *context.tiles).reduce_alone();
    return 0;
  }
  const int64_t elements = elements_of(message_bytes_among(size), slices.front().reduction());
  const Steps steps(std::move(slices), size, false, elements);
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  CpuTensors tensors(context);
  tensors.begin({&steps, 1});
  Crossing crossing(context, tensors, steps, std::move(ranks), context.group.rank(), {.delivers_results = false});
  run_pipeline(steps.count(), {{0, [&](uint32_t step) { crossing.contribute(step); }},
                               {Crossing::kLag, [&](uint32_t step) { crossing.reduce(step); }}});
  return tensors.saturated();
}

}  // namespace hvd
