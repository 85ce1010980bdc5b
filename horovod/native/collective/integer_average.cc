#include "collective/integer_average.h"

#include <cstdint>
#include <memory>

#include "codec/arithmetic.h"
#include "collective/allreduce.h"

namespace hvd {
namespace {

__extension__ using Wide = __int128;

// All tensors as int64s to add: one for each element, or a quotient and a remainder.
template <typename T>
class WideIntegers {
 public:
  static constexpr bool kIsSplit = sizeof(T) == sizeof(int64_t);

  WideIntegers(std::span<const BucketTensor> tensors, const BucketReduction& reduction)
      : tensors_(tensors),
        reduction_(reduction),
        ranks_(static_cast<int64_t>(reduction.scale.divisor)),
        count_(count_of(tensors)),
        values_(new int64_t[static_cast<size_t>(kIsSplit ? 2 * count_ : count_)]) {}

  BucketTensor to_add() const {
    BucketTensor all;
    all.source = all.destination = values_.get();
    all.count = kIsSplit ? 2 * count_ : count_;
    return all;
  }

  void widen() {
    int64_t at = 0;
    for (const BucketTensor& tensor : tensors_) {
      require_memory(tensor);
      const T* x = static_cast<const T*>(tensor.source);
      if (reduction_.prescale == 1.0) {
        for (int64_t i = 0; i < tensor.count; ++i) put(at++, x[i]);
      } else {
        for (int64_t i = 0; i < tensor.count; ++i) put(at++, times(x[i], reduction_.prescale));
      }
    }
  }

  void narrow() const {
    int64_t at = 0;
    for (const BucketTensor& tensor : tensors_) {
      if (tensor.destination != nullptr) {
        require_memory(tensor);
        T* y = static_cast<T*>(tensor.destination);
        for (int64_t i = 0; i < tensor.count; ++i) y[i] = average(at + i);
      }
      at += tensor.count;
    }
  }

 private:
  void put(int64_t at, T x) {
    if constexpr (kIsSplit) {
      values_[static_cast<size_t>(at)] = x / ranks_;
      values_[static_cast<size_t>(count_ + at)] = x % ranks_;
    } else {
      values_[static_cast<size_t>(at)] = +x;  // + promotes an int8_t to int, because it is a character type
    }
  }

  T average(int64_t at) const {
    Wide sum = values_[static_cast<size_t>(at)];
    if constexpr (kIsSplit) sum = sum * ranks_ + values_[static_cast<size_t>(count_ + at)];
    if (reduction_.scale.factor == 1.0) return static_cast<T>(sum / ranks_);
    return integer_from_double<T>(static_cast<double>(sum) * (reduction_.scale.factor / reduction_.scale.divisor));
  }

  std::span<const BucketTensor> tensors_;
  const BucketReduction& reduction_;
  const int64_t ranks_;
  const int64_t count_;  // of all tensors
  const std::unique_ptr<int64_t[]> values_;
};

template <typename T>
void average_as(CollectiveContext& context, const PlanRules& rules, std::span<const BucketTensor> tensors,
                const BucketReduction& reduction, const std::function<void(const Plan&)>& on_plan) {
  WideIntegers<T> integers(tensors, reduction);
  const BucketTensor all = integers.to_add();
  BucketReduction sum;
  sum.dtype = DType::kInt64;
  const Plan plan = plan_allreduce(facts_of(context, {&all, 1}, sum), rules);
  on_plan(plan);
  context.enter(Phase::kPack);
  integers.widen();
  allreduce(context, {&all, 1}, sum, plan.route);
  context.enter(Phase::kUnpack);
  integers.narrow();
}

}  // namespace

bool is_integer_average(ReduceOp asked, DType dtype, int ranks) {
  return asked == ReduceOp::kAverage && ranks > 1 && !is_float(dtype) && dtype != DType::kBool;
}

void average_integers(CollectiveContext& context, const PlanRules& rules, std::span<const BucketTensor> tensors,
                      const BucketReduction& reduction, const std::function<void(const Plan&)>& on_plan) {
  switch (reduction.dtype) {
    case DType::kUInt8:
      return average_as<uint8_t>(context, rules, tensors, reduction, on_plan);
    case DType::kInt8:
      return average_as<int8_t>(context, rules, tensors, reduction, on_plan);
    case DType::kInt16:
      return average_as<int16_t>(context, rules, tensors, reduction, on_plan);
    case DType::kInt32:
      return average_as<int32_t>(context, rules, tensors, reduction, on_plan);
    default:
      return average_as<int64_t>(context, rules, tensors, reduction, on_plan);
  }
}

}  // namespace hvd
