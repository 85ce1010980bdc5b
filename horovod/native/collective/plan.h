// How an allreduce is carried out: a pure function of sizes, of where the ranks are, and of what moving bytes costs. Every rank
// computes the same from the same facts. The routes are drawn in docs/architecture.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "collective/plan_rules.h"
#include "collective/reduce.h"
#include "transport/topology.h"

namespace hvd {

// Known by its name. Here are those that code asks for; a row of allreduce_patterns.cc may name another.
struct Pattern {
  std::string_view name;

  static const Pattern kAlone;    // one rank: nothing crosses a wire
  static const Pattern kGather;   // contributions go to all: one round, one quantisation
  static const Pattern kScatter;  // contributions go to the slice's owner, results to all: two rounds, two quantisations
  static const Pattern kLibrary;  // the carrier's own allreduce

  bool operator==(const Pattern&) const = default;
};
inline constexpr Pattern Pattern::kAlone{"alone"}, Pattern::kGather{"gather"}, Pattern::kScatter{"scatter"},
    Pattern::kLibrary{"allreduce"};

enum class Levels {
  kFlat,          // all ranks alike
  kHierarchical,  // inside each host at full precision; the pattern is that between hosts
};

// What takes bytes from rank to rank, on a hierarchy those inside of a host beside messages or NCCL's between hosts.
enum class Carrier { kNone, kWindow, kMessages, kNccl };

struct Route {
  Pattern pattern = Pattern::kAlone;
  Levels levels = Levels::kFlat;
  Carrier carrier = Carrier::kNone;
  bool is_staged = false;  // of GPU tensors, whose messages go through memory of the host

  bool operator==(const Route&) const = default;
  bool gathers() const { return pattern == Pattern::kGather; }
  bool is_hierarchical() const { return levels == Levels::kHierarchical; }
};

// For people: "window gather", "exchange ring", "hierarchical scatter", "nccl allreduce", "host". Nothing else reads it.
std::string name_of(const Route& route);
std::string_view name_of(Levels levels);
std::string_view name_of(Carrier carrier);

struct Estimate {
  Route route;
  double seconds = 0;
};

struct Plan {
  Route route;
  bool is_encoded = false;  // whether the codec is used: a hierarchy of one host has full precision, like the inside of any
  std::vector<Estimate> estimates;  // of the routes that were to choose from; empty where nothing is estimated
  std::string reason;               // if it was not the estimates
};

// Why, for logs and timelines: the reason, or "estimated: exchange gather 1.200 ms, exchange scatter 2.000 ms".
std::string explain(const Plan& plan);

struct PlanFacts {
  int ranks = 1;
  int hosts = 1;                  // that these ranks are on
  int most_on_a_host = 1;         // ranks
  int carriers = 1;               // ranks of each host that exchange with other hosts on a hierarchical route
  bool shares_memory = false;     // all of them, by one window
  bool has_host_windows = false;  // those of each host, with more than one rank on some
  bool is_encoded = false;
  bool sums_can_travel = false;  // of some ranks, as the tensors do: neither encoded nor rounded, nor scaled before
  int64_t bytes = 0;             // of the tensors
  int64_t wire_bytes = 0;        // of their messages
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;

  bool on_gpu = false;
  bool has_nccl = false;         // every rank has a GPU of its own and NCCL, and nobody asked for the host
  std::string why_no_nccl = {};  // if not
};

Plan plan_allreduce(const PlanFacts& facts, const PlanRules& rules);
// Whether there is a route of each algorithm that is asked for: where there is none, the plan is that of others.
bool has_routes(const PlanFacts& facts, const Algorithms& algorithms);
// The first half of a scatter: always by messages, by kernels where they can sum.
Plan plan_reducescatter(const PlanFacts& facts, const PlanRules& rules);

// How many ranks of each host carry slices to the other hosts on a hierarchical route. `hosts`: the ranks of each.
int carriers_of(std::span<const std::vector<int>> hosts, int most = 16);

}  // namespace hvd
