// The table of allreduce patterns, one row each. plan.cc chooses a row, and the backends run it.
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
  kLastResort,  // possible, but only if nothing else is
  kIfAsked,
  kGood,
};

struct AllreducePattern {
  Route route;          // its name is the pattern's name
  const char* meaning;  // one or two plain sentences for users
  Algorithm algorithm;  // its value of HOROVOD_ALLREDUCE_ALGORITHM
  // How well the pattern suits these ranks and tensors. With `needs_order`, contributions must be summed in rank order.
  Fit (*fits)(const Route& route, const PlanFacts& facts, bool needs_order);
  // Estimated seconds: the latency of the rounds plus the longer of moving the bytes and working on them.
  double (*seconds)(bool gathers, const PlanFacts& facts, const PlanCosts& costs);
  // Exactly one of the next two is set: `run`, which returns as allreduce() does, or NCCL's own allreduce.
  int64_t (*run)(const RouteParts& parts, std::span<const BucketTensor> tensors, const BucketReduction& reduction,
                 bool gathers) = nullptr;
  void (*run_by_nccl)(const NcclContext& nccl, std::span<const BucketTensor> tensors,
                      const BucketReduction& reduction) = nullptr;
};

// If two rows share a function (which receives `gathers`), the row of a gather comes first.
std::span<const AllreducePattern> allreduce_patterns();
// The row of a plan's route.
const AllreducePattern& pattern_of(const Route& route);

// ---- possible sums: plans depend on them, on the CPU and on GPUs ------------------------------------------------------

// Kernels sum in rank order, in float32, with a limited number of contributions.
constexpr bool kernels_sum(DType dtype, ReduceOp op, int contributions = 1) {
  return op == ReduceOp::kSum && (dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16) &&
         contributions <= static_cast<int>(DeviceKernels::kMostContributions);
}

// NCCL's allreduce. Its Min and Max of floats are excluded: here a NaN wins both, and NCCL does not promise that.
constexpr bool nccl_sums(DType dtype, ReduceOp op) {
  if (op == ReduceOp::kAdasum || dtype == DType::kInt16) return false;
  return !(is_float(dtype) && (op == ReduceOp::kMin || op == ReduceOp::kMax));
}

// Whether the result has the same bits in any order: two terms, integers, Min and Max.
constexpr bool has_one_sum(DType dtype, ReduceOp op, int ranks) {
  const bool adds_up = op == ReduceOp::kSum || op == ReduceOp::kProduct;
  return ranks == 2 || !is_float(dtype) || !adds_up;
}

}  // namespace hvd
