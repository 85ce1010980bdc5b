// Which way an allreduce of GPU tensors takes: a pure function of facts that are the same on every rank.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "collective/reduce.h"
#include "collective/route.h"

namespace hvd {

enum class DeviceRoute {
  kAlone,             // one rank
  kNcclAllreduce,     // elements, by NCCL's own allreduce
  kNcclGather,        // contributions go to all: codes, or elements to be summed in rank order
  kNcclScatter,       // contributions go to the slice's owner, results to all
  kNcclHierarchical,  // elements inside each host, codes across, each GPU with its own slice
  kHost,              // through memory of the host, and reduced there: CPU-reduce
};

std::string_view name_of(DeviceRoute route);

struct DeviceRouteFacts {
  int ranks = 1;
  int hosts = 1;
  int most_on_a_host = 1;    // ranks
  bool has_nccl = false;     // every rank has a GPU of its own and NCCL, and nobody asked for the host
  std::string why_no_nccl;   // if not
  bool nccl_serves = false;  // NCCL's own allreduce: the dtype and the op
  bool is_encoded = false;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  int64_t wire_bytes = 0;  // of their messages
};

struct DeviceChoice {
  DeviceRoute route = DeviceRoute::kAlone;
  bool is_encoded = false;  // whether the codec is used
  std::string why;
};

DeviceChoice choose_device_route(const DeviceRouteFacts& facts, const RouteRules& rules);

// Whether kernels sum this in rank order: sums are made in float32.
constexpr bool kernels_reduce(DType dtype, ReduceOp op) {
  return op == ReduceOp::kSum && (dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16);
}

// Whether sums across hosts go to all of them: two send equal bytes either way, and then quantise once.
constexpr bool gathers_across(int hosts) { return hosts == 2; }

}  // namespace hvd
