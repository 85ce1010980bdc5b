// The choice of an allreduce's route: a pure function of sizes, the ranks' places and the costs of moving bytes. Every rank
// computes the same plan from the same facts. docs/architecture.md lists the routes.
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

// Identified by its name. These are the patterns that code names; a row of allreduce_patterns.cc may name another.
struct Pattern {
  std::string_view name;

  static const Pattern kAlone;    // one rank: nothing is sent
  static const Pattern kGather;   // contributions go to all: one round, one quantisation
  static const Pattern kScatter;  // contributions go to the slice's owner, results to all: two rounds, two quantisations
  static const Pattern kLibrary;  // NCCL's own allreduce

  bool operator==(const Pattern&) const = default;
};
inline constexpr Pattern Pattern::kAlone{"alone"}, Pattern::kGather{"gather"}, Pattern::kScatter{"scatter"},
    Pattern::kLibrary{"allreduce"};

enum class Levels {
  kFlat,          // all ranks alike
  kHierarchical,  // inside each host at full precision, then the pattern between hosts
};

// The carrier of bytes between ranks; on a hierarchical route, between hosts.
enum class Carrier { kNone, kWindow, kMessages, kNccl };

struct Route {
  Pattern pattern = Pattern::kAlone;
  Levels levels = Levels::kFlat;
  Carrier carrier = Carrier::kNone;
  bool is_staged = false;  // GPU tensors whose messages go through host memory

  bool operator==(const Route&) const = default;
  bool gathers() const { return pattern == Pattern::kGather; }
  bool is_hierarchical() const { return levels == Levels::kHierarchical; }
};

// For logs and users, never parsed: "window gather", "exchange ring", "hierarchical scatter", "nccl allreduce", "host".
std::string name_of(const Route& route);
std::string_view name_of(Levels levels);
std::string_view name_of(Carrier carrier);

struct Estimate {
  Route route;
  double seconds = 0;
};

struct Plan {
  Route route;
  bool is_encoded = false;          // whether the codec is used; with a hierarchy of one host it is not
  std::vector<Estimate> estimates;  // of the candidate routes; empty if nothing is estimated
  std::string reason;               // if the estimates did not decide
};

// For logs and timelines: the reason, or "estimated: exchange gather 1.200 ms, exchange scatter 2.000 ms".
std::string explain(const Plan& plan);

struct PlanFacts {
  int ranks = 1;
  int hosts = 1;                  // that have some of these ranks
  int most_on_a_host = 1;         // ranks
  int carriers = 1;               // ranks of each host that exchange with other hosts on a hierarchical route
  bool shares_memory = false;     // all ranks share one window
  bool has_host_windows = false;  // the ranks of each host share a window, and a host has more than one rank
  bool is_encoded = false;
  bool sums_can_travel = false;  // partial sums have the tensors' dtype: no codec, no wider accumulator, no prescale
  int64_t bytes = 0;             // of the tensors
  int64_t wire_bytes = 0;        // of their messages
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;

  bool on_gpu = false;
  bool has_nccl = false;         // each rank has NCCL and its own GPU, and the settings do not force the host
  std::string why_no_nccl = {};  // if not
};

Plan plan_allreduce(const PlanFacts& facts, const PlanRules& rules);
// Whether each algorithm asked for has a route. Without one, the plan uses other routes.
bool has_routes(const PlanFacts& facts, const Algorithms& algorithms);
// Plans the first half of a scatter: always by messages, and by kernels if they can sum.
Plan plan_reducescatter(const PlanFacts& facts, const PlanRules& rules);

// How many ranks of each host carry slices between hosts on a hierarchical route. `hosts`: the ranks of each.
int carriers_of(std::span<const std::vector<int>> hosts, int most = 16);

}  // namespace hvd
