// The collectives of tensors in memory of the CPU: they are done when a call returns.
#pragma once

#include "collective/backend.h"
#include "collective/context.h"

namespace hvd {

class CpuBackend final : public Backend {
 public:
  // Both outlive it.
  CpuBackend(CollectiveContext& context, const PlanRules& rules) : context_(context), rules_(rules) {}

  std::string name() const override { return "the CPU"; }
  PlanFacts facts(std::span<const BucketTensor> tensors, const BucketReduction& reduction) const override;
  const PlanRules& rules() const override { return rules_; }
  void allreduce(std::span<const BucketTensor> tensors, const BucketReduction& reduction, const Route& route) override;
  void adasum(std::span<const BucketTensor> tensors, const BucketReduction& reduction) override;
  void reducescatter(std::vector<std::vector<BucketTensor>> by_rank, const BucketReduction& reduction,
                     const Route& route) override;
  void broadcast(int root, void* data, size_t bytes) override;
  void move(const Movement& movement) override;
  void copy(void* to, const void* from, size_t bytes) override;
  int64_t take_saturated() override;

 private:
  CollectiveContext& context_;
  const PlanRules& rules_;
  int64_t saturated_ = 0;
};

}  // namespace hvd
