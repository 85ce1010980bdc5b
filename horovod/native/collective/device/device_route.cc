#include "collective/device/device_route.h"

#include <optional>

#include "device/device_kernels.h"

namespace hvd {
namespace {

// Of codes: below that a second round of messages costs more than what it saves.
constexpr int64_t kSmallBytes = int64_t{32} << 10;

constexpr std::string_view kAsked = "HOROVOD_ALLREDUCE_ALGORITHM asks for it";
constexpr std::string_view kDeterministic = "HOROVOD_DETERMINISTIC: by the number of ranks alone";

// More contributions than a kernel sums.
bool are_too_many(int contributions) { return contributions > static_cast<int>(DeviceKernels::kMostContributions); }

DeviceChoice by_host(const DeviceRouteFacts& facts, bool is_encoded, std::string why) {
  return {DeviceRoute::kHost, is_encoded && facts.is_encoded, std::move(why)};
}

std::string of_dtype(const DeviceRouteFacts& facts) {
  return std::string(name_of(facts.op)) + " of " + std::string(name_of(facts.dtype));
}

// The same bits whatever is fused with what: two terms have one order, integers and the largest of them any.
bool is_exact_in_any_order(const DeviceRouteFacts& facts) {
  const bool adds_up = facts.op == ReduceOp::kSum || facts.op == ReduceOp::kProduct;
  return facts.ranks == 2 || !is_float(facts.dtype) || !adds_up;
}

DeviceChoice choose_exact(const DeviceRouteFacts& facts, const RouteRules& rules) {
  const bool can_sum = kernels_reduce(facts.dtype, facts.op) && !are_too_many(facts.ranks);
  const bool is_asked = rules.algorithm == Algorithm::kGather || rules.algorithm == Algorithm::kScatter;
  if (is_asked && can_sum) {
    return {rules.algorithm == Algorithm::kGather ? DeviceRoute::kNcclGather : DeviceRoute::kNcclScatter, false,
            std::string(kAsked)};
  }
  if (rules.is_deterministic && !is_exact_in_any_order(facts)) {
    if (can_sum) return {DeviceRoute::kNcclScatter, false, "HOROVOD_DETERMINISTIC: sums in rank order"};
    return by_host(facts, false, "HOROVOD_DETERMINISTIC: NCCL has its own order, and kernels no " + of_dtype(facts));
  }
  if (!facts.nccl_serves) return by_host(facts, false, "NCCL has no " + of_dtype(facts) + " as it is here");
  if (is_asked) return {DeviceRoute::kNcclAllreduce, false, "kernels have no " + of_dtype(facts) + ", NCCL has"};
  return {DeviceRoute::kNcclAllreduce, false, "exact"};
}

bool can_be_hierarchical(const DeviceRouteFacts& facts) { return facts.hosts > 1 && facts.most_on_a_host > 1; }

DeviceChoice choose_encoded(const DeviceRouteFacts& facts, const RouteRules& rules) {
  if (!kernels_reduce(facts.dtype, facts.op)) return by_host(facts, true, "kernels have no codes of " + of_dtype(facts));
  const bool may_be_hierarchical = rules.algorithm == Algorithm::kAuto || rules.algorithm == Algorithm::kHierarchical;
  if (may_be_hierarchical && can_be_hierarchical(facts)) {
    if (are_too_many(facts.most_on_a_host) || are_too_many(facts.hosts)) {
      return by_host(facts, true, "more ranks of a host, or hosts, than kernels sum");
    }
    const bool is_asked = rules.algorithm == Algorithm::kHierarchical;
    return {DeviceRoute::kNcclHierarchical, true, is_asked ? std::string(kAsked) : "several ranks on several hosts"};
  }
  if (are_too_many(facts.ranks)) return by_host(facts, true, "more ranks than kernels sum");
  if (rules.algorithm == Algorithm::kGather) return {DeviceRoute::kNcclGather, true, std::string(kAsked)};
  if (rules.algorithm == Algorithm::kScatter) return {DeviceRoute::kNcclScatter, true, std::string(kAsked)};
  if (facts.ranks == 2) return {DeviceRoute::kNcclGather, true, "two ranks send equal bytes, and quantise once"};
  if (rules.is_deterministic) return {DeviceRoute::kNcclScatter, true, std::string(kDeterministic)};
  if (facts.wire_bytes * (facts.ranks - 1) <= kSmallBytes) return {DeviceRoute::kNcclGather, true, "small: one round"};
  return {DeviceRoute::kNcclScatter, true, "sends the least"};
}

}  // namespace

std::string_view name_of(DeviceRoute route) {
  constexpr std::string_view kNames[] = {"alone", "nccl allreduce", "nccl gather", "nccl scatter", "nccl hierarchical", "host"};
  return kNames[static_cast<int>(route)];
}

DeviceChoice choose_device_route(const DeviceRouteFacts& facts, const RouteRules& rules) {
  if (facts.ranks == 1) return {DeviceRoute::kAlone, false, "one rank"};
  const bool is_inner = rules.algorithm == Algorithm::kHierarchical && facts.hosts == 1;
  const bool is_encoded = facts.is_encoded && !is_inner;
  DeviceChoice choice = !facts.has_nccl ? by_host(facts, is_encoded, facts.why_no_nccl)
                        : is_encoded    ? choose_encoded(facts, rules)
                                        : choose_exact(facts, rules);
  if (is_inner && facts.is_encoded) choice.why = "a hierarchy of one host is exact; " + choice.why;
  return choice;
}

}  // namespace hvd
