#include "collective/plan.h"

#include <algorithm>
#include <cstdio>

#include "base/error.h"

namespace hvd {
namespace {

// Encoding and decoding cost about as much again as the reading and writing they are part of.
constexpr double kCodecPasses = 2.0;

constexpr Route kExchange[] = {{Pattern::kGather, Levels::kFlat, Carrier::kMessages},
                               {Pattern::kScatter, Levels::kFlat, Carrier::kMessages}};
constexpr Route kInWindow[] = {{Pattern::kGather, Levels::kFlat, Carrier::kWindow},
                               {Pattern::kScatter, Levels::kFlat, Carrier::kWindow}};
constexpr Route kHierarchy[] = {{Pattern::kGather, Levels::kHierarchical, Carrier::kMessages},
                                {Pattern::kScatter, Levels::kHierarchical, Carrier::kMessages}};

// Those to choose from, once the ranks' places, or the user, have said the rest. Of each pair the gathering one is first.
std::vector<Route> candidates(const PlanFacts& facts, Algorithm algorithm) {
  const std::span<const Route> flat = facts.shares_memory ? kInWindow : kExchange;
  if (algorithm == Algorithm::kGather) return {flat[0]};
  if (algorithm == Algorithm::kScatter) return {flat[1]};
  const bool can_be_hierarchical = facts.hosts > 1 && facts.has_host_windows;
  std::vector<Route> found;
  if (can_be_hierarchical) found.assign(std::begin(kHierarchy), std::end(kHierarchy));
  if (!can_be_hierarchical || algorithm == Algorithm::kAuto) found.insert(found.end(), flat.begin(), flat.end());
  return found;
}

// Two parties send equal bytes either way, and then one quantisation is better than two; more send less by scattering.
Route deterministic(const std::vector<Route>& among, const PlanFacts& facts) {
  const int parties = among.front().is_hierarchical() ? facts.hosts : facts.ranks;
  return facts.is_encoded && parties == 2 ? among[0] : among[1];
}

std::string milliseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f ms", seconds * 1e3);
  return text;
}

}  // namespace

std::string_view name_of(Pattern pattern) {
  constexpr std::string_view kNames[] = {"alone", "gather", "scatter", "allreduce"};
  return kNames[static_cast<int>(pattern)];
}

std::string_view name_of(Levels levels) { return levels == Levels::kFlat ? "flat" : "hierarchical"; }

std::string_view name_of(Carrier carrier) {
  constexpr std::string_view kNames[] = {"none", "window", "exchange", "nccl", "host"};
  return kNames[static_cast<int>(carrier)];
}

std::string name_of(const Route& route) {
  if (route.pattern == Pattern::kAlone) return std::string(name_of(route.pattern));
  if (route.carrier == Carrier::kHost) return std::string(name_of(route.carrier));
  if (route.carrier == Carrier::kNccl && route.is_hierarchical()) return "nccl hierarchical";
  const std::string_view first = route.is_hierarchical() ? name_of(route.levels) : name_of(route.carrier);
  return std::string(first) + " " + std::string(name_of(route.pattern));
}

Algorithm algorithm_named(const std::string& name) {
  constexpr std::string_view kNames[] = {"auto", "gather", "scatter", "hierarchical"};
  const auto found = std::find(std::begin(kNames), std::end(kNames), name);
  if (found == std::end(kNames)) throw InvalidArgument("there is no allreduce algorithm '" + name + "'");
  return static_cast<Algorithm>(found - std::begin(kNames));
}

int carriers_of(std::span<const std::vector<int>> hosts) {
  size_t carriers = 16;  // more share the work no better, but make smaller messages
  for (const std::vector<int>& ranks : hosts) carriers = std::min(carriers, ranks.size());
  return static_cast<int>(carriers);
}

double estimate(const Route& route, const PlanFacts& facts, const LinkCosts& costs) {
  if (route.pattern == Pattern::kAlone) return 0;
  const bool gather = route.gathers();
  const bool hierarchical = route.is_hierarchical();
  const double parties = hierarchical ? facts.hosts : facts.ranks;
  const double others = parties - 1;
  const double rounds = gather ? 1 : 2;
  const auto bytes = static_cast<double>(facts.bytes);

  // Passes over the tensors that one rank makes: packing, reducing, and, where each reduces a slice, unpacking.
  double passes = gather ? 1 + parties : 1 + 2 * others / parties;
  if (facts.is_encoded) passes = kCodecPasses * (gather ? 1 + parties : 3 + 1 / parties);
  double time = 0;
  if (hierarchical) {  // inside: packing, reducing and collecting; across: a slice for each rank of a host
    passes = 3 + passes / facts.carriers;
    time += 2 * costs.memory_latency;
  }
  const double work = passes * bytes * costs.memory_byte;
  if (facts.shares_memory) return rounds * costs.memory_latency + work;

  // What leaves the busiest host by its link. A rank of a flat route sends to all ranks that are not on its host.
  const auto wire = static_cast<double>(facts.wire_bytes);
  const double own = hierarchical ? 1 : facts.most_on_a_host;
  const double sent = own * (parties - own) * (gather ? wire : 2 * wire / parties);
  if (facts.hosts == 1) {  // messages inside a host, which are copied twice
    const double copied = gather ? others * wire : 2 * others / parties * wire;
    return rounds * costs.memory_latency + work + 2 * copied * costs.memory_byte;
  }
  return time + rounds * costs.network_latency + std::max(work, sent * costs.network_byte);
}

Plan plan_allreduce(const PlanFacts& facts, const PlanRules& rules) {
  if (facts.ranks == 1) return {{}, false, {}, "one rank"};
  Plan plan{{}, facts.is_encoded, {}, ""};
  PlanFacts asked = facts;
  if (rules.algorithm == Algorithm::kHierarchical && facts.hosts == 1) {
    plan.reason = "a hierarchy of one host is exact";
    plan.is_encoded = asked.is_encoded = false;
    asked.wire_bytes = facts.bytes;
  }
  const std::vector<Route> among = candidates(facts, rules.algorithm);
  for (const Route& route : among) plan.estimates.push_back({route, estimate(route, asked, rules.costs)});
  if (among.size() == 1) {
    plan.route = among.front();
    plan.reason = "HOROVOD_ALLREDUCE_ALGORITHM asks for it";
  } else if (rules.is_deterministic) {
    plan.route = deterministic(among, asked);
    plan.reason = "HOROVOD_DETERMINISTIC: by the number of ranks alone";
  } else {
    const auto shorter = [](const Estimate& a, const Estimate& b) { return a.seconds < b.seconds; };
    plan.route = std::min_element(plan.estimates.begin(), plan.estimates.end(), shorter)->route;
  }
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
