#include "collective/backend.h"

#include <cstring>
#include <utility>

#include "collective/allreduce.h"
#include "collective/integer_average.h"
#include "collective/movement.h"
#include "collective/tensor_memory.h"

namespace hvd {
namespace {

class CpuBackend final : public Backend {
 public:
  CpuBackend(CollectiveContext& context, const PlanRules& rules) : context_(context), rules_(rules) {}

  std::string name() const override { return "the CPU"; }

  PlanFacts facts(std::span<const BucketTensor> tensors, const BucketReduction& reduction) const override {
    return facts_of(context_, tensors, reduction);
  }

  const PlanRules& rules() const override { return rules_; }

  void allreduce(std::span<const BucketTensor> tensors, const BucketReduction& reduction, const Route& route) override {
    saturated_ += hvd::allreduce(context_, tensors, reduction, route);
  }

  void adasum(std::span<const BucketTensor> tensors, const BucketReduction& reduction) override {
    hvd::adasum(context_, tensors, reduction);
  }

  void average_integers(std::span<const BucketTensor> tensors, const BucketReduction& reduction,
                        const std::function<void(const Plan&)>& on_plan) override {
    hvd::average_integers(context_, rules_, tensors, reduction, on_plan);
  }

  void reducescatter(std::vector<std::vector<BucketTensor>> by_rank, const BucketReduction& reduction, const Route&) override {
    std::vector<Layout> slices = layouts_of(std::move(by_rank), reduction);
    if (slices.size() == 1) return Bucket(slices.front(), context_.simd, *context_.tiles).reduce_alone();
    CpuTensors memory(context_);
    RankWire wire(context_);
    saturated_ += hvd::reducescatter({context_, memory, wire}, std::move(slices));
  }

  void broadcast(int root, void* data, size_t bytes) override { hvd::broadcast(context_, root, data, bytes); }
  void move(const Movement& movement) override { hvd::move(context_, movement); }
  void copy(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  int64_t take_saturated() override { return std::exchange(saturated_, 0); }

 private:
  CollectiveContext& context_;
  const PlanRules& rules_;
  int64_t saturated_ = 0;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(CollectiveContext& context, const PlanRules& rules) {
  return std::make_unique<CpuBackend>(context, rules);
}

}  // namespace hvd
