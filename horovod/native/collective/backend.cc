#include "collective/backend.h"

#include <cstring>
#include <utility>

#include "collective/allreduce.h"
#include "collective/integer_average.h"
#include "collective/movement.h"
#include "collective/tensor_memory.h"

namespace hvd {

PlanFacts CpuBackend::facts(std::span<const BucketTensor> tensors, const BucketReduction& reduction) const {
  return facts_of(context_, tensors, reduction);
}

void CpuBackend::allreduce(std::span<const BucketTensor> tensors, const BucketReduction& reduction, const Route& route) {
  saturated_ += hvd::allreduce(context_, tensors, reduction, route);
}

void CpuBackend::adasum(std::span<const BucketTensor> tensors, const BucketReduction& reduction) {
  hvd::adasum(context_, tensors, reduction);
}

void CpuBackend::average_integers(std::span<const BucketTensor> tensors, const BucketReduction& reduction,
                                  const std::function<void(const Plan&)>& on_plan) {
  hvd::average_integers(context_, rules_, tensors, reduction, on_plan);
}

void CpuBackend::reducescatter(std::vector<std::vector<BucketTensor>> by_rank, const BucketReduction& reduction, const Route&) {
  std::vector<Layout> slices;
  for (std::vector<BucketTensor>& parts : by_rank) slices.emplace_back(std::move(parts), reduction);
  if (slices.size() == 1) return Bucket(slices.front(), context_.simd, *context_.tiles).reduce_alone();
  CpuTensors memory(context_);
  RankWire wire(context_);
  saturated_ += hvd::reducescatter({context_, memory, wire}, std::move(slices));
}

void CpuBackend::broadcast(int root, void* data, size_t bytes) { hvd::broadcast(context_, root, data, bytes); }

void CpuBackend::move(const Movement& movement) { hvd::move(context_, movement); }

void CpuBackend::copy(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }

int64_t CpuBackend::take_saturated() { return std::exchange(saturated_, 0); }

}  // namespace hvd
