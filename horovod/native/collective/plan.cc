#include "collective/plan.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "base/error.h"
#include "collective/allreduce_patterns.h"

namespace hvd {
namespace {

// The patterns to choose from, given the ranks' places, the tensors and the settings.
struct Candidates {
  std::vector<const AllreducePattern*> all;
  bool are_asked_for = false;
};

Candidates candidates(const PlanFacts& facts, Algorithm algorithm, bool needs_order) {
  auto fitting = [&](Fit fit, Algorithm asked) {
    std::vector<const AllreducePattern*> some;
    for (const AllreducePattern& pattern : allreduce_patterns()) {
      const Fit its = pattern.fits(pattern.route, facts, needs_order);
      const bool is_it = its == fit || (its == Fit::kGood && fit == Fit::kIfAsked);
      if (is_it && (asked == Algorithm::kAuto || pattern.algorithm == asked)) some.push_back(&pattern);
    }
    return some;
  };
  if (algorithm != Algorithm::kAuto) {
    if (auto asked = fitting(Fit::kIfAsked, algorithm); !asked.empty()) return {asked, true};
  }
  if (auto good = fitting(Fit::kGood, Algorithm::kAuto); !good.empty()) return {good};
  // Messages that the host sums for GPUs are scattered, also if "gather" is asked for.
  auto others = fitting(Fit::kLastResort, algorithm == Algorithm::kGather ? Algorithm::kScatter : algorithm);
  return {others.empty() ? fitting(Fit::kLastResort, Algorithm::kAuto) : others};
}

// Two parties send equal bytes either way, so one quantisation is better than two. More parties send less by scattering.
Route deterministic(const std::vector<const AllreducePattern*>& among, const PlanFacts& facts) {
  const Route& first = among.front()->route;
  const int parties = first.is_hierarchical() ? facts.hosts : facts.ranks;
  const bool has_other = among.size() > 1 && among[1]->route.levels == first.levels;
  return among[has_other && !(facts.is_encoded && parties == 2) ? 1 : 0]->route;
}

std::vector<Estimate> estimated(const Candidates& among, const PlanFacts& facts, const PlanCosts& costs) {
  std::vector<Estimate> estimates;
  for (const AllreducePattern* each : among.all)
    estimates.push_back({each->route, each->seconds(each->route.gathers(), facts, costs)});
  return estimates;
}

Route shortest(const std::vector<Estimate>& estimates) {
  const auto shorter = [](const Estimate& a, const Estimate& b) { return a.seconds < b.seconds; };
  return std::min_element(estimates.begin(), estimates.end(), shorter)->route;
}

std::string what(const PlanFacts& facts) { return std::string(name_of(facts.op)) + " of " + std::string(name_of(facts.dtype)); }

// The reason why GPU tensors go through host memory.
std::string why_staged(const PlanFacts& facts, bool needs_order) {
  if (!facts.has_nccl) return facts.why_no_nccl;
  if (needs_order) return "HOROVOD_DETERMINISTIC: NCCL has its own order, and kernels no " + what(facts);
  if (!facts.is_encoded) return "NCCL has no " + what(facts) + " as it is here";
  if (!kernels_sum(facts.dtype, facts.op)) return "kernels have no codes of " + what(facts);
  return "more ranks than kernels sum";
}

std::string why_no_other(const Candidates& among, const PlanFacts& facts, Algorithm algorithm, bool needs_order) {
  const Route& route = among.all.front()->route;
  if (among.are_asked_for) return "HOROVOD_ALLREDUCE_ALGORITHM asks for it";
  if (facts.on_gpu && route.carrier != Carrier::kNccl) return why_staged(facts, needs_order);
  const bool is_flat = algorithm == Algorithm::kGather || algorithm == Algorithm::kScatter;
  if (route.pattern == Pattern::kLibrary && is_flat) return "kernels have no " + what(facts) + ", NCCL has";
  return route.pattern == Pattern::kLibrary ? "exact" : "there is no other";
}

// A bucket's size depends on what was fused, which a deterministic plan must not depend on.
Algorithm algorithm_for(const PlanFacts& facts, const PlanRules& rules) {
  return rules.is_deterministic ? rules.algorithms.beyond : rules.algorithms.of(facts.bytes);
}

std::string milliseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f ms", seconds * 1e3);
  return text;
}

}  // namespace

std::string_view name_of(Levels levels) { return levels == Levels::kFlat ? "flat" : "hierarchical"; }

std::string_view name_of(Carrier carrier) {
  constexpr std::string_view kNames[] = {"none", "window", "exchange", "nccl"};
  return kNames[static_cast<int>(carrier)];
}

std::string name_of(const Route& route) {
  if (route.pattern == Pattern::kAlone) return std::string(route.pattern.name);
  if (route.is_staged) return "host";
  if (route.carrier == Carrier::kNccl && route.is_hierarchical()) return "nccl hierarchical";
  const std::string_view first = route.is_hierarchical() ? name_of(route.levels) : name_of(route.carrier);
  return std::string(first) + " " + std::string(route.pattern.name);
}

Algorithms algorithms_named(const std::string& text) {
  const auto named = [](const std::string& name) {
    if (name == Algorithm::kAuto.name) return Algorithm::kAuto;
    const auto has_it = [&](const AllreducePattern& pattern) { return pattern.algorithm.name == name; };
    const auto found = std::ranges::find_if(allreduce_patterns(), has_it);
    if (found == allreduce_patterns().end()) throw InvalidArgument(Said::algorithm_unknown, {.others = {{"value", name}}});
    return found->algorithm;
  };
  const size_t colon = text.find(':'), comma = text.find(',');
  if (colon == std::string::npos || comma == std::string::npos || comma < colon) return {0, Algorithm::kAuto, named(text)};
  int64_t bytes = 0;
  const char *begin = text.data() + colon + 1, *end = text.data() + comma;
  if (const auto [rest, error] = std::from_chars(begin, end, bytes); rest != end || error != std::errc() || bytes < 0) {
    throw InvalidArgument(Said::threshold_without_bytes, {.others = {{"value", text}}});
  }
  return {bytes, named(text.substr(0, colon)), named(text.substr(comma + 1))};
}

std::string to_text(const GpuCosts& costs) {
  char text[160];
  std::snprintf(text, sizeof text, "kernels %.0f GB/s, NCCL %.0f us + %.1f GB/s, between hosts %.0f us + %.2f Gbit/s",
                1e-9 / costs.kernel_byte, costs.local_latency * 1e6, 1e-9 / costs.local_byte, costs.network_latency * 1e6,
                8e-9 / costs.network_byte);
  return text;
}

int carriers_of(std::span<const std::vector<int>> hosts, int most) {
  auto carriers = static_cast<size_t>(most);  // more carriers share the work no better, but make smaller messages
  for (const std::vector<int>& ranks : hosts) carriers = std::min(carriers, ranks.size());
  return static_cast<int>(carriers);
}

Plan plan_allreduce(const PlanFacts& facts, const PlanRules& rules) {
  if (facts.ranks == 1) return {{}, false, {}, "one rank"};
  Plan plan{{}, facts.is_encoded, {}, ""};
  PlanFacts asked = facts;
  const Algorithm algorithm = algorithm_for(facts, rules);
  if (algorithm == Algorithm::kHierarchical && facts.hosts == 1) {
    plan.reason = "a hierarchy of one host is exact";
    plan.is_encoded = asked.is_encoded = false;
    asked.wire_bytes = facts.bytes;
  }
  const bool needs_order = rules.is_deterministic && !asked.is_encoded && !has_one_sum(facts.dtype, facts.op, facts.ranks);
  const Candidates among = candidates(asked, algorithm, needs_order);
  const bool is_staged = facts.on_gpu && among.all.front()->route.carrier != Carrier::kNccl;
  std::string reason;
  if (among.all.size() == 1 || is_staged) {
    reason = why_no_other(among, asked, algorithm, needs_order);
  } else if (rules.is_deterministic) {
    reason = "HOROVOD_DETERMINISTIC: by the number of ranks alone";
  }
  const std::vector<Estimate> estimates = estimated(among, asked, rules.costs);
  plan.route = rules.is_deterministic ? deterministic(among.all, asked) : shortest(estimates);
  plan.route.is_staged = is_staged;
  if (!is_staged) plan.estimates = estimates;  // the estimates of a staged route are for CPU tensors
  if (!reason.empty()) plan.reason += (plan.reason.empty() ? "" : "; ") + reason;
  return plan;
}

bool has_routes(const PlanFacts& facts, const Algorithms& algorithms) {
  const auto has_one = [&](Algorithm algorithm) {
    const auto is_one = [&](const AllreducePattern& pattern) {
      return pattern.algorithm == algorithm && pattern.fits(pattern.route, facts, false) != Fit::kNone;
    };
    return algorithm == Algorithm::kAuto || (facts.ranks > 1 && std::ranges::any_of(allreduce_patterns(), is_one));
  };
  return has_one(algorithms.up_to) && has_one(algorithms.beyond);
}

Plan plan_reducescatter(const PlanFacts& facts, const PlanRules& rules) {
  PlanFacts apart = facts;
  apart.shares_memory = apart.has_host_windows = false;
  PlanRules scattered = rules;
  scattered.algorithms = {0, Algorithm::kAuto, Algorithm::kScatter};
  Plan plan = plan_allreduce(apart, scattered);
  if (facts.ranks > 1 && !plan.route.is_staged) plan.reason = "each rank reduces its own rows";
  return plan;
}

std::string explain(const Plan& plan) {
  if (!plan.reason.empty()) return plan.reason;
  std::string text = "estimated:";
  for (const Estimate& each : plan.estimates) {
    text += (text.back() == ':' ? " " : ", ") + name_of(each.route) + " " + milliseconds(each.seconds);
  }
  return text;
}

}  // namespace hvd
