// How an allreduce of GPU tensors is carried out: a pure function of facts that are the same on every rank. NCCL's carriers
// are the GPUs of all ranks; Carrier::kHost goes through memory of the host, and is reduced there.
#pragma once

#include <string>

#include "base/dtype.h"
#include "collective/plan.h"
#include "collective/reduce.h"

namespace hvd {

struct DevicePlanFacts : PlanFacts {
  bool has_nccl = false;     // every rank has a GPU of its own and NCCL, and nobody asked for the host
  std::string why_no_nccl;   // if not
  bool nccl_serves = false;  // NCCL's own allreduce: the dtype and the op
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
};

Plan plan_device_allreduce(const DevicePlanFacts& facts, const PlanRules& rules);

// Whether kernels sum this in rank order: sums are made in float32.
constexpr bool kernels_reduce(DType dtype, ReduceOp op) {
  return op == ReduceOp::kSum && (dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16);
}

}  // namespace hvd
