// Allreduce by messages, for ranks that share no memory.
#include <algorithm>
#include <numeric>

#include "collective/allreduce.h"
#include "collective/crossing.h"
#include "collective/slices.h"

namespace hvd {

int64_t allreduce_by_exchange(CollectiveContext& context, std::span<const BucketTensor> tensors,
                              const BucketReduction& reduction, bool gather) {
  const int size = context.group.size(), rank = context.group.rank();
  const Steps steps(slices_of(tensors, reduction, gather ? 1 : size, gather ? kNoPart : rank, context.simd, *context.tiles),
                    size, gather, elements_of(message_bytes_among(size), reduction));
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  Crossing crossing(context, steps, std::move(ranks), rank, {});
  auto contribute = [&](uint32_t step) { crossing.contribute(step); };
  auto reduce = [&](uint32_t step) { crossing.reduce(step); };
  auto collect = [&](uint32_t step) {
    crossing.arrive(step);
    context.enter(gather ? Phase::kReduce : Phase::kUnpack);
    steps.collect(step, crossing.landing(step), crossing.done());
  };
  constexpr uint32_t kLag = Crossing::kLag;
  if (gather) {
    run_pipeline(steps.count(), {{0, contribute}, {kLag, collect}});
  } else {
    run_pipeline(steps.count(), {{0, contribute}, {kLag, reduce}, {2 * kLag, collect}});
  }
  return steps.saturated();
}

}  // namespace hvd
