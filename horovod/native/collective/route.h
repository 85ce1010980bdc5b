// Which way an allreduce takes: a pure function of sizes, of where the ranks are, and of what moving bytes costs. Every rank
// computes the same from the same facts. The ways are drawn in docs/architecture.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "transport/link_costs.h"

namespace hvd {

enum class Route {
  kAlone,                // one rank: nothing crosses a wire
  kWindowGather,         // one host, shared memory: every rank reads all contributions
  kWindowScatter,        // one host, shared memory: each rank reduces a slice, all read the results
  kExchangeGather,       // messages: contributions go to all
  kExchangeScatter,      // messages: contributions go to the slice's owner, results to all
  kHierarchicalGather,   // shared memory inside each host; across, contributions of hosts go to all hosts
  kHierarchicalScatter,  // shared memory inside each host; across, to the slice's owner, results to all
};

std::string_view name_of(Route route);

// HOROVOD_ALLREDUCE_ALGORITHM.
enum class Algorithm { kAuto, kGather, kScatter, kHierarchical };
// Throws InvalidArgument for a name that is none of "auto", "gather", "scatter", "hierarchical".
Algorithm algorithm_named(const std::string& name);

struct RouteRules {
  Algorithm algorithm = Algorithm::kAuto;
  bool is_deterministic = false;  // the route must not depend on what happened to be fused
  LinkCosts costs;
};

struct RouteFacts {
  int ranks = 1;
  int hosts = 1;                  // that these ranks are on
  int most_on_a_host = 1;         // ranks
  int carriers = 1;               // ranks of each host that exchange with other hosts on a hierarchical route
  bool shares_memory = false;     // all of them, by one window
  bool has_host_windows = false;  // those of each host, with more than one rank on some
  bool is_encoded = false;
  int64_t bytes = 0;       // of the tensors
  int64_t wire_bytes = 0;  // of their messages
};

struct RouteChoice {
  Route route = Route::kAlone;
  bool is_encoded = false;  // whether the codec is used: a hierarchy of one host has full precision, like the inside of any
  std::string_view reason;  // if it was not the cost
};

RouteChoice choose_route(const RouteFacts& facts, const RouteRules& rules);

// What a route will take, in seconds: rounds of messages, and the longer of moving the bytes and working on them.
double estimate(Route route, const RouteFacts& facts, const LinkCosts& costs);

// Why the choice was made, for logs and timelines: "estimated: exchange gather 1.2 ms, exchange scatter 2.0 ms".
std::string explain(const RouteFacts& facts, const RouteRules& rules, const RouteChoice& choice);

}  // namespace hvd
