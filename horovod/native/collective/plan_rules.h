// The inputs of a plan beside its facts: the routes asked for, and the costs of links and GPUs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "transport/topology.h"

namespace hvd {

// An algorithm of HOROVOD_ALLREDUCE_ALGORITHM, identified by its name. These are the algorithms that the planner names; rows of
// allreduce_patterns.cc name the others, and the setting's choices are in horovod/common/options/ranks.py.
struct Algorithm {
  std::string_view name;

  static const Algorithm kAuto, kGather, kScatter, kHierarchical;

  bool operator==(const Algorithm&) const = default;
};
inline constexpr Algorithm Algorithm::kAuto{"auto"}, Algorithm::kGather{"gather"}, Algorithm::kScatter{"scatter"},
    Algorithm::kHierarchical{"hierarchical"};

// HOROVOD_ALLREDUCE_ALGORITHM: one algorithm for tensors of up to `most_bytes` in all, another for larger ones.
struct Algorithms {
  int64_t most_bytes = 0;
  Algorithm up_to = Algorithm::kAuto, beyond = Algorithm::kAuto;

  Algorithm of(int64_t bytes) const { return bytes <= most_bytes ? up_to : beyond; }
};
// Parses "scatter" or "gather:65536,scatter". Throws InvalidArgument otherwise.
Algorithms algorithms_named(const std::string& text);

// The costs of GPUs in seconds. The defaults, used until costs are measured, are for GPUs on PCIe and 10 Gbit/s Ethernet.
struct GpuCosts {
  double kernel_byte = 2e-12;                              // read and write a byte of GPU memory
  double local_latency = 15e-6, local_byte = 1e-10;        // NCCL to a GPU of the same host
  double network_latency = 50e-6, network_byte = 0.85e-9;  // NCCL to a GPU of another host

  bool operator==(const GpuCosts&) const = default;
};
// "kernels 500 GB/s, NCCL 15 us + 10.0 GB/s, between hosts 50 us + 9.41 Gbit/s"
std::string to_text(const GpuCosts& costs);

struct PlanCosts {
  LinkCosts links;
  GpuCosts gpu;
};

struct PlanRules {
  Algorithms algorithms;
  bool is_deterministic = false;  // the route must not depend on which tensors were fused
  PlanCosts costs;
};

}  // namespace hvd
