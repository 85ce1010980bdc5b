#include "collective/allreduce_patterns.h"

#include <algorithm>

#include "collective/allreduce.h"

namespace hvd {
namespace {

// Encoding and decoding cost about as much again as the reading and writing they are part of.
constexpr double kCodecPasses = 2.0;

// Passes over the tensors that one party makes: packing, reducing, and, where each reduces a slice, unpacking.
double passes(bool gathers, double parties, bool is_encoded) {
  if (is_encoded) return kCodecPasses * (gathers ? 1 + parties : 3 + 1 / parties);
  return gathers ? 1 + parties : 1 + 2 * (parties - 1) / parties;
}

double rounds(bool gathers) { return gathers ? 1 : 2; }

double work(double passes, const PlanFacts& facts, const LinkCosts& costs) {
  return passes * static_cast<double>(facts.bytes) * costs.memory_byte;
}

// Of messages that a party sends, counted in those of all tensors.
double messages(bool gathers, double parties) { return gathers ? parties - 1 : 2 * (parties - 1) / parties; }

double in_window(bool gathers, const PlanFacts& facts, const LinkCosts& costs) {
  return rounds(gathers) * costs.memory_latency + work(passes(gathers, facts.ranks, facts.is_encoded), facts, costs);
}

// Ranks whose messages leave hosts by `sent` of the tensors' messages on the busiest cable, or are copied twice inside of one.
double by_messages(double latencies, double passes, double sent, double copied, const PlanFacts& facts,
                   const LinkCosts& costs) {
  const auto wire = static_cast<double>(facts.wire_bytes);
  const double working = work(passes, facts, costs);
  if (facts.hosts == 1) return latencies * costs.memory_latency + working + 2 * copied * wire * costs.memory_byte;
  return latencies * costs.network_latency + std::max(working, sent * wire * costs.network_byte);
}

double by_exchange(bool gathers, const PlanFacts& facts, const LinkCosts& costs) {
  // A rank sends to all ranks that are not on its host.
  const double parties = facts.ranks, own = facts.most_on_a_host;
  const double sent = own * (parties - own) * (gathers ? 1 : 2 / parties);
  return by_messages(rounds(gathers), passes(gathers, parties, facts.is_encoded), sent, messages(gathers, parties), facts,
                     costs);
}

double around_ring(bool, const PlanFacts& facts, const LinkCosts& costs) {
  // One rank of each host sends to another host.
  const double others = facts.ranks - 1, sent = messages(false, facts.ranks);
  return by_messages(2 * others, sent + 1.0 / facts.ranks, sent, sent, facts, costs);
}

double by_hierarchy(bool gathers, const PlanFacts& facts, const LinkCosts& costs) {
  // Inside: packing, reducing and collecting; across: a slice for each rank of a host that carries one.
  const double parties = facts.hosts;
  const double working = work(3 + passes(gathers, parties, facts.is_encoded) / facts.carriers, facts, costs);
  const double moving = messages(gathers, parties) * static_cast<double>(facts.wire_bytes) * costs.network_byte;
  return 2 * costs.memory_latency + rounds(gathers) * costs.network_latency + std::max(working, moving);
}

bool is_hierarchical(const PlanFacts& facts) { return facts.hosts > 1 && facts.has_host_windows; }
bool shares_memory(const PlanFacts& facts) { return facts.shares_memory; }
bool sends_messages(const PlanFacts& facts) { return !facts.shares_memory; }
bool passes_sums_on(const PlanFacts& facts) { return !facts.shares_memory && facts.sums_can_travel && facts.ranks > 2; }

constexpr AllreducePattern kPatterns[] = {
    {{Pattern::kGather, Levels::kHierarchical, Carrier::kMessages},
     "The ranks of each host add up in their memory first; then hosts send their sums to all other hosts. What "
     "crosses the network does not grow with the ranks of a host.",
     Algorithm::kHierarchical,
     is_hierarchical,
     by_hierarchy,
     allreduce_by_hierarchy},
    {{Pattern::kScatter, Levels::kHierarchical, Carrier::kMessages},
     "The ranks of each host add up in their memory first; then each host gets a slice from all others, adds it up, "
     "and sends the sum back. It sends least over the network.",
     Algorithm::kHierarchical,
     is_hierarchical,
     by_hierarchy,
     allreduce_by_hierarchy},
    {{Pattern::kGather, Levels::kFlat, Carrier::kWindow},
     "All ranks share memory: each reads what all the others have put there and adds it up. One round, so it suits "
     "few ranks and small sizes.",
     Algorithm::kGather,
     shares_memory,
     in_window,
     allreduce_through_window},
    {{Pattern::kScatter, Levels::kFlat, Carrier::kWindow},
     "All ranks share memory: each adds up one slice for all, and then reads the other slices. Two rounds, but no "
     "number is added up twice.",
     Algorithm::kScatter,
     shares_memory,
     in_window,
     allreduce_through_window},
    {{Pattern::kGather, Levels::kFlat, Carrier::kMessages},
     "Every rank sends its numbers to every other. One round, so it suits small sizes, for which waiting costs most, "
     "and two ranks, which send as much either way.",
     Algorithm::kGather,
     sends_messages,
     by_exchange,
     allreduce_by_exchange},
    {{Pattern::kScatter, Levels::kFlat, Carrier::kMessages},
     "Every rank gets one slice from all others, adds it up, and sends the sum back. Two rounds, but with more than "
     "two ranks fewer bytes cross the network.",
     Algorithm::kScatter,
     sends_messages,
     by_exchange,
     allreduce_by_exchange},
    {{Pattern::kRing, Levels::kFlat, Carrier::kMessages},
     "Sums go from rank to rank, host after host, and then the results. Each host sends to one other only, but every "
     "rank is a round or two: it suits large sizes.",
     Algorithm::kRing,
     passes_sums_on,
     around_ring,
     allreduce_around_ring},
};

}  // namespace

std::span<const AllreducePattern> allreduce_patterns() { return kPatterns; }

}  // namespace hvd
