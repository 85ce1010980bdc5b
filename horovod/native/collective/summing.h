// Who can sum what: routes are chosen by this, on the CPU and on GPUs.
#pragma once

#include "base/dtype.h"
#include "collective/reduce.h"
#include "device/device_kernels.h"

namespace hvd {

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
