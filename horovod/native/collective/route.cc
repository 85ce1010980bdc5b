#include "collective/route.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "base/error.h"

namespace hvd {
namespace {

// Encoding and decoding cost about as much again as the reading and writing they are part of.
constexpr double kCodecPasses = 2.0;

bool is_gather(Route route) {
  return route == Route::kWindowGather || route == Route::kExchangeGather || route == Route::kHierarchicalGather;
}

bool can_be_hierarchical(const RouteFacts& facts) { return facts.hosts > 1 && facts.has_host_windows; }

// The two ways to choose from: once the ranks' places, or the user, have said the rest.
struct Pair {
  Route gather, scatter;
};

Pair flat(const RouteFacts& facts) {
  if (facts.shares_memory) return {Route::kWindowGather, Route::kWindowScatter};
  return {Route::kExchangeGather, Route::kExchangeScatter};
}

std::vector<Route> candidates(const RouteFacts& facts, const RouteRules& rules) {
  constexpr Pair kHierarchy = {Route::kHierarchicalGather, Route::kHierarchicalScatter};
  const Pair level = flat(facts);
  switch (rules.algorithm) {
    case Algorithm::kGather:
      return {level.gather};
    case Algorithm::kScatter:
      return {level.scatter};
    case Algorithm::kHierarchical:
      if (can_be_hierarchical(facts)) return {kHierarchy.gather, kHierarchy.scatter};
      return {level.gather, level.scatter};
    case Algorithm::kAuto:
      break;
  }
  if (!can_be_hierarchical(facts)) return {level.gather, level.scatter};
  return {kHierarchy.gather, kHierarchy.scatter, level.gather, level.scatter};
}

// Two parties send equal bytes either way, and then one quantisation is better than two; more send less by scattering.
Route deterministic(const std::vector<Route>& among, const RouteFacts& facts) {
  const int parties = among.front() == Route::kHierarchicalGather ? facts.hosts : facts.ranks;
  return facts.is_encoded && parties == 2 ? among[0] : among[1];
}

std::string milliseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f ms", seconds * 1e3);
  return text;
}

}  // namespace

std::string_view name_of(Route route) {
  constexpr std::string_view kNames[] = {"alone",
                                         "window gather",
                                         "window scatter",
                                         "exchange gather",
                                         "exchange scatter",
                                         "hierarchical gather",
                                         "hierarchical scatter"};
  return kNames[static_cast<int>(route)];
}

Algorithm algorithm_named(const std::string& name) {
  constexpr std::string_view kNames[] = {"auto", "gather", "scatter", "hierarchical"};
  const auto found = std::find(std::begin(kNames), std::end(kNames), name);
  if (found == std::end(kNames)) throw InvalidArgument("there is no allreduce algorithm '" + name + "'");
  return static_cast<Algorithm>(found - std::begin(kNames));
}

double estimate(Route route, const RouteFacts& facts, const LinkCosts& costs) {
  if (route == Route::kAlone) return 0;
  const bool gather = is_gather(route);
  const bool hierarchical = route == Route::kHierarchicalGather || route == Route::kHierarchicalScatter;
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

RouteChoice choose_route(const RouteFacts& facts, const RouteRules& rules) {
  if (facts.ranks == 1) return {Route::kAlone, false, "one rank"};
  const std::vector<Route> among = candidates(facts, rules);
  RouteChoice choice{among.front(), facts.is_encoded, ""};
  RouteFacts asked = facts;
  if (rules.algorithm == Algorithm::kHierarchical && facts.hosts == 1) {
    choice = {among.front(), false, "a hierarchy of one host is exact"};
    asked.is_encoded = false;
    asked.wire_bytes = facts.bytes;
  }
  if (among.size() == 1) {
    choice.reason = "HOROVOD_ALLREDUCE_ALGORITHM asks for it";
  } else if (rules.is_deterministic) {
    choice.route = deterministic(among, asked);
    choice.reason = "HOROVOD_DETERMINISTIC: by the number of ranks alone";
  } else {
    choice.route = *std::min_element(among.begin(), among.end(), [&](Route a, Route b) {
      return estimate(a, asked, rules.costs) < estimate(b, asked, rules.costs);
    });
  }
  return choice;
}

std::string explain(const RouteFacts& facts, const RouteRules& rules, const RouteChoice& choice) {
  if (!choice.reason.empty()) return std::string(choice.reason);
  std::string text = "estimated:";
  for (const Route route : candidates(facts, rules)) {
    text += (text.back() == ':' ? " " : ", ") + std::string(name_of(route)) + " " +
            milliseconds(estimate(route, facts, rules.costs));
  }
  return text;
}

}  // namespace hvd
