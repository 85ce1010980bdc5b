#include "collective/plan.h"

#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "collective/allreduce_patterns.h"

namespace hvd {
namespace {

// Those to choose from, once the ranks' places, the tensors and the user have said the rest.
std::vector<const AllreducePattern*> candidates(const PlanFacts& facts, Algorithm algorithm) {
  std::vector<const AllreducePattern*> serving, asked;
  for (const AllreducePattern& pattern : allreduce_patterns()) {
    if (!pattern.serves(facts)) continue;
    serving.push_back(&pattern);
    if (pattern.algorithm == algorithm) asked.push_back(&pattern);
  }
  return asked.empty() ? serving : asked;
}

// Two parties send equal bytes either way, and then one quantisation is better than two; more send less by scattering.
Route deterministic(const std::vector<const AllreducePattern*>& among, const PlanFacts& facts) {
  const int parties = among.front()->route.is_hierarchical() ? facts.hosts : facts.ranks;
  return among[facts.is_encoded && parties == 2 ? 0 : 1]->route;
}

std::string milliseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f ms", seconds * 1e3);
  return text;
}

}  // namespace

std::string_view name_of(Pattern pattern) { return kPatternNames[static_cast<int>(pattern)]; }

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
  const auto found = std::find(std::begin(kAlgorithmNames), std::end(kAlgorithmNames), name);
  if (found == std::end(kAlgorithmNames)) throw InvalidArgument("there is no allreduce algorithm '" + name + "'");
  return static_cast<Algorithm>(found - std::begin(kAlgorithmNames));
}

int carriers_of(std::span<const std::vector<int>> hosts) {
  size_t carriers = 16;  // more share the work no better, but make smaller messages
  for (const std::vector<int>& ranks : hosts) carriers = std::min(carriers, ranks.size());
  return static_cast<int>(carriers);
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
  const std::vector<const AllreducePattern*> among = candidates(facts, rules.algorithm);
  for (const AllreducePattern* each : among)
    plan.estimates.push_back({each->route, each->seconds(each->route.gathers(), asked, rules.costs)});
  if (among.size() == 1) {
    plan.route = among.front()->route;
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
