#include "collective/device/device_plan.h"

#include "device/device_kernels.h"

namespace hvd {
namespace {

// Of codes: below that a second round of messages costs more than what it saves.
constexpr int64_t kSmallBytes = int64_t{32} << 10;

constexpr std::string_view kAsked = "HOROVOD_ALLREDUCE_ALGORITHM asks for it";
constexpr std::string_view kDeterministic = "HOROVOD_DETERMINISTIC: by the number of ranks alone";

constexpr Route kLibrary = {Pattern::kLibrary, Levels::kFlat, Carrier::kNccl};
constexpr Route kGather = {Pattern::kGather, Levels::kFlat, Carrier::kNccl};
constexpr Route kScatter = {Pattern::kScatter, Levels::kFlat, Carrier::kNccl};

// Two hosts send equal bytes either way, and then quantise once.
Route hierarchy_of(int hosts) {
  return {hosts == 2 ? Pattern::kGather : Pattern::kScatter, Levels::kHierarchical, Carrier::kNccl};
}

// More contributions than a kernel sums.
bool are_too_many(int contributions) { return contributions > static_cast<int>(DeviceKernels::kMostContributions); }

// By what joins the ranks of each host, and scattered, as two-way transfers between GPU and host hide in each other.
Plan by_host(const DevicePlanFacts& facts, const PlanRules& rules, std::string why) {
  const bool is_flat = rules.algorithm == Algorithm::kGather || rules.algorithm == Algorithm::kScatter;
  const bool is_hierarchical = !is_flat && !facts.shares_memory && facts.has_host_windows;
  const Levels levels = is_hierarchical ? Levels::kHierarchical : Levels::kFlat;
  return {{Pattern::kScatter, levels, Carrier::kHost}, facts.is_encoded, {}, std::move(why)};
}

std::string of_dtype(const DevicePlanFacts& facts) {
  return std::string(name_of(facts.op)) + " of " + std::string(name_of(facts.dtype));
}

// The same bits whatever is fused with what: two terms have one order, integers and the largest of them any.
bool is_exact_in_any_order(const DevicePlanFacts& facts) {
  const bool adds_up = facts.op == ReduceOp::kSum || facts.op == ReduceOp::kProduct;
  return facts.ranks == 2 || !is_float(facts.dtype) || !adds_up;
}

Plan plan_exact(const DevicePlanFacts& facts, const PlanRules& rules) {
  const bool can_sum = kernels_reduce(facts.dtype, facts.op) && !are_too_many(facts.ranks);
  const bool is_asked = rules.algorithm == Algorithm::kGather || rules.algorithm == Algorithm::kScatter;
  if (is_asked && can_sum) {
    return {rules.algorithm == Algorithm::kGather ? kGather : kScatter, false, {}, std::string(kAsked)};
  }
  if (rules.is_deterministic && !is_exact_in_any_order(facts)) {
    if (can_sum) return {kScatter, false, {}, "HOROVOD_DETERMINISTIC: sums in rank order"};
    return by_host(facts, rules, "HOROVOD_DETERMINISTIC: NCCL has its own order, and kernels no " + of_dtype(facts));
  }
  if (!facts.nccl_serves) return by_host(facts, rules, "NCCL has no " + of_dtype(facts) + " as it is here");
  if (is_asked) return {kLibrary, false, {}, "kernels have no " + of_dtype(facts) + ", NCCL has"};
  return {kLibrary, false, {}, "exact"};
}

bool can_be_hierarchical(const DevicePlanFacts& facts) { return facts.hosts > 1 && facts.most_on_a_host > 1; }

Plan plan_encoded(const DevicePlanFacts& facts, const PlanRules& rules) {
  if (!kernels_reduce(facts.dtype, facts.op)) return by_host(facts, rules, "kernels have no codes of " + of_dtype(facts));
  const bool may_be_hierarchical = rules.algorithm == Algorithm::kAuto || rules.algorithm == Algorithm::kHierarchical;
  if (may_be_hierarchical && can_be_hierarchical(facts)) {
    if (are_too_many(facts.most_on_a_host) || are_too_many(facts.hosts)) {
      return by_host(facts, rules, "more ranks of a host, or hosts, than kernels sum");
    }
    const bool is_asked = rules.algorithm == Algorithm::kHierarchical;
    return {hierarchy_of(facts.hosts), true, {}, is_asked ? std::string(kAsked) : "several ranks on several hosts"};
  }
  if (are_too_many(facts.ranks)) return by_host(facts, rules, "more ranks than kernels sum");
  if (rules.algorithm == Algorithm::kGather) return {kGather, true, {}, std::string(kAsked)};
  if (rules.algorithm == Algorithm::kScatter) return {kScatter, true, {}, std::string(kAsked)};
  if (facts.ranks == 2) return {kGather, true, {}, "two ranks send equal bytes, and quantise once"};
  if (rules.is_deterministic) return {kScatter, true, {}, std::string(kDeterministic)};
  if (facts.wire_bytes * (facts.ranks - 1) <= kSmallBytes) return {kGather, true, {}, "small: one round"};
  return {kScatter, true, {}, "sends the least"};
}

}  // namespace

Plan plan_device_allreduce(const DevicePlanFacts& facts, const PlanRules& asked) {
  if (facts.ranks == 1) return {{}, false, {}, "one rank"};
  PlanRules rules = asked;
  if (rules.algorithm == Algorithm::kRing) rules.algorithm = Algorithm::kAuto;  // NCCL makes rings of its own
  const bool is_inner = rules.algorithm == Algorithm::kHierarchical && facts.hosts == 1;
  DevicePlanFacts used = facts;
  used.is_encoded = facts.is_encoded && !is_inner;
  Plan plan = !used.has_nccl    ? by_host(used, rules, used.why_no_nccl)
              : used.is_encoded ? plan_encoded(used, rules)
                                : plan_exact(used, rules);
  if (is_inner && facts.is_encoded) plan.reason = "a hierarchy of one host is exact; " + plan.reason;
  return plan;
}

}  // namespace hvd
