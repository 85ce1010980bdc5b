// Rules of plans besides their facts: the routes asked for, and the costs of links and GPUs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "transport/topology.h"

namespace hvd {

// What HOROVOD_ALLREDUCE_ALGORITHM asks for, by its name. Here are those that the planner asks for; the others are in the rows
// of allreduce_patterns.cc, and the setting's choices in horovod/common/options/ranks.py.
struct Algorithm {
  std::string_view name;

  static const Algorithm kAuto, kGather, kScatter, kHierarchical;

  bool operator==(const Algorithm&) const = default;
};
inline constexpr Algorithm Algorithm::kAuto{"auto"}, Algorithm::kGather{"gather"}, Algorithm::kScatter{"scatter"},
    Algorithm::kHierarchical{"hierarchical"};

// HOROVOD_ALLREDUCE_ALGORITHM: one for all sizes, or one up to so many bytes of tensors, and another beyond.
struct Algorithms {
  int64_t most_bytes = 0;
  Algorithm up_to = Algorithm::kAuto, beyond = Algorithm::kAuto;

  Algorithm of(int64_t bytes) const { return bytes <= most_bytes ? up_to : beyond; }
};
// Of "scatter", or "gather:65536,scatter". Throws InvalidArgument for what is neither.
Algorithms algorithms_named(const std::string& text);

// What GPUs take, in seconds. The defaults stand where nothing has been measured: GPUs on PCIe, and Ethernet of 10 Gbit/s.
struct GpuCosts {
  double kernel_byte = 2e-12;                              // to read a byte of the GPU's memory and write it
  double local_latency = 15e-6, local_byte = 1e-10;        // NCCL's, to a GPU of the same host
  double network_latency = 50e-6, network_byte = 0.85e-9;  // and to one of another

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
  bool is_deterministic = false;  // the route must not depend on what happened to be fused
  PlanCosts costs;
};

}  // namespace hvd
