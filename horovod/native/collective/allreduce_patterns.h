// The ways in which ranks can carry out an allreduce, one row for each: plan.cc chooses among them, the backends run what was
// chosen. They are drawn in docs/architecture.md.
#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "collective/allreduce.h"
#include "collective/plan.h"
#include "collective/reduce.h"
#include "device/device_kernels.h"

namespace hvd {

struct NcclContext;

enum class Fit {
  kNone,
  kLastResort,  // it would do, where nothing else does
  kIfAsked,
  kGood,
};

struct AllreducePattern {
  Route route;          // whose name is the pattern's
  const char* meaning;  // in one or two plain sentences, for people
  Algorithm algorithm;  // what HOROVOD_ALLREDUCE_ALGORITHM calls it
  // Whether it is for ranks in these places, and for these tensors. `needs_order`: they are to be summed in rank order.
  Fit (*fits)(const Route& route, const PlanFacts& facts, bool needs_order);
  // What it will take: rounds of messages, and the longer of moving the bytes and working on them.
  double (*seconds)(bool gathers, const PlanFacts& facts, const PlanCosts& costs);
  // One of the two: with whatever means, returning how many finite values a codec's range cut off on the CPU; or what NCCL does
  // by itself.
  int64_t (*run)(const Means& means, std::span<const BucketTensor> tensors, const BucketReduction& reduction,
                 bool gathers) = nullptr;
  void (*run_by_nccl)(const NcclContext& nccl, std::span<const BucketTensor> tensors,
                      const BucketReduction& reduction) = nullptr;
};

// Of two that share a function, which is told whether the route gathers, the one that does stands first.
std::span<const AllreducePattern> allreduce_patterns();
// That of a plan's route.
const AllreducePattern& pattern_of(const Route& route);

// ---- who can sum what: routes are chosen by this, on the CPU and on GPUs --------------------------------------------

// Kernels sum in rank order, in float32, and no more contributions than these.
constexpr bool kernels_sum(DType dtype, ReduceOp op, int contributions = 1) {
  return op == ReduceOp::kSum && (dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16) &&
         contributions <= static_cast<int>(DeviceKernels::kMostContributions);
}

// NCCL's own allreduce. Here a NaN is the largest and the smallest; NCCL does not say whether it is there.
constexpr bool nccl_sums(DType dtype, ReduceOp op) {
  if (op == ReduceOp::kAdasum || dtype == DType::kInt16) return false;
  return !(is_float(dtype) && (op == ReduceOp::kMin || op == ReduceOp::kMax));
}

// The same bits in whatever order: of two terms, of integers, and of what is the largest of them.
constexpr bool has_one_sum(DType dtype, ReduceOp op, int ranks) {
  const bool adds_up = op == ReduceOp::kSum || op == ReduceOp::kProduct;
  return ranks == 2 || !is_float(dtype) || !adds_up;
}

}  // namespace hvd
