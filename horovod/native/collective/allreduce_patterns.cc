#include "collective/allreduce_patterns.h"

#include <algorithm>

#include "collective/allreduce.h"
#include "collective/device/nccl_backend.h"

namespace hvd {
namespace {

// Encoding or decoding costs about as much again as the pass over memory that it is part of.
constexpr double kCodecPasses = 2.0;

// Passes over the tensors that one party makes: packing, reducing, and for a scatter unpacking.
double passes(bool gathers, double parties, bool is_encoded) {
  if (is_encoded) return kCodecPasses * (gathers ? 1 + parties : 3 + 1 / parties);
  return gathers ? 1 + parties : 1 + 2 * (parties - 1) / parties;
}

double rounds(bool gathers) { return gathers ? 1 : 2; }

double work(double passes, const PlanFacts& facts, const PlanCosts& costs) {
  return passes * static_cast<double>(facts.bytes) * costs.links.memory_byte;
}

// Messages that a party sends, as a multiple of one message with all tensors.
double messages(bool gathers, double parties) { return gathers ? parties - 1 : 2 * (parties - 1) / parties; }

double in_window(bool gathers, const PlanFacts& facts, const PlanCosts& costs) {
  return rounds(gathers) * costs.links.memory_latency + work(passes(gathers, facts.ranks, facts.is_encoded), facts, costs);
}

// Between hosts the busiest link carries `sent` times all tensors' messages. Inside one host `copied` times all tensors'
// messages are copied twice.
double by_messages(double latencies, double passes, double sent, double copied, const PlanFacts& facts,
                   const PlanCosts& costs) {
  const auto wire = static_cast<double>(facts.wire_bytes);
  const double working = work(passes, facts, costs);
  if (facts.hosts == 1) return latencies * costs.links.memory_latency + working + 2 * copied * wire * costs.links.memory_byte;
  return latencies * costs.links.network_latency + std::max(working, sent * wire * costs.links.network_byte);
}

double by_exchange(bool gathers, const PlanFacts& facts, const PlanCosts& costs) {
  // A rank sends to all ranks of other hosts.
  const double parties = facts.ranks, own = facts.most_on_a_host;
  const double sent = own * (parties - own) * (gathers ? 1 : 2 / parties);
  return by_messages(rounds(gathers), passes(gathers, parties, facts.is_encoded), sent, messages(gathers, parties), facts,
                     costs);
}

double around_ring(bool, const PlanFacts& facts, const PlanCosts& costs) {
  // One rank of each host sends to another host.
  const double others = facts.ranks - 1, sent = messages(false, facts.ranks);
  return by_messages(2 * others, sent + 1.0 / facts.ranks, sent, sent, facts, costs);
}

double by_hierarchy(bool gathers, const PlanFacts& facts, const PlanCosts& costs) {
  // Inside a host: packing, reducing and collecting. Between hosts: a slice for each carrier.
  const double parties = facts.hosts;
  const double working = work(3 + passes(gathers, parties, facts.is_encoded) / facts.carriers, facts, costs);
  const double moving = messages(gathers, parties) * static_cast<double>(facts.wire_bytes) * costs.links.network_byte;
  return 2 * costs.links.memory_latency + rounds(gathers) * costs.links.network_latency + std::max(working, moving);
}

// The same for GPUs. NCCL's transfers overlap with the kernels of other steps.
double kernels(double passes, const PlanFacts& facts, const PlanCosts& costs) {
  return passes * static_cast<double>(facts.bytes) * costs.gpu.kernel_byte;
}

double between_gpus(bool gathers, const PlanFacts& facts, const PlanCosts& costs) {
  const double parties = facts.ranks, own = facts.most_on_a_host;
  const auto wire = static_cast<double>(facts.wire_bytes);
  const double working = kernels(passes(gathers, parties, facts.is_encoded), facts, costs);
  const double inside = messages(gathers, parties) * wire * costs.gpu.local_byte;
  if (facts.hosts == 1) return rounds(gathers) * costs.gpu.local_latency + std::max(working, inside);
  const double across = own * (parties - own) * (gathers ? 1 : 2 / parties) * wire * costs.gpu.network_byte;
  return rounds(gathers) * costs.gpu.network_latency + std::max(working, across);
}

double between_hosts_gpus(bool gathers, const PlanFacts& facts, const PlanCosts& costs) {
  const double parties = facts.hosts, others = 1 - 1.0 / facts.carriers;
  const auto wire = static_cast<double>(facts.wire_bytes);
  const double working = kernels(3 + passes(gathers, parties, facts.is_encoded) / facts.carriers, facts, costs);
  // Inside a host: elements to the carriers, and received messages from them.
  const double arrived = (gathers ? parties : 1) * wire;
  const double inside = others * (static_cast<double>(facts.bytes) + arrived) * costs.gpu.local_byte;
  const double across = messages(gathers, parties) * wire * costs.gpu.network_byte;
  return 2 * costs.gpu.local_latency + rounds(gathers) * costs.gpu.network_latency + std::max({working, inside, across});
}

double by_nccl_itself(bool, const PlanFacts& facts, const PlanCosts& costs) {
  const bool is_inside = facts.hosts == 1;
  const double moved = messages(false, facts.ranks) * static_cast<double>(facts.bytes);
  return 2 * (is_inside ? costs.gpu.local_latency : costs.gpu.network_latency) +
         moved * (is_inside ? costs.gpu.local_byte : costs.gpu.network_byte);
}

// For GPU tensors summed by the host, only a scatter is possible: copies in both directions overlap.
Fit in_host_memory(bool is_possible, const Route& route, const PlanFacts& facts) {
  if (!is_possible) return Fit::kNone;
  if (!facts.on_gpu) return Fit::kGood;
  return route.pattern == Pattern::kScatter ? Fit::kLastResort : Fit::kNone;
}

Fit with_host_windows(const Route& route, const PlanFacts& facts, bool) {
  return in_host_memory(facts.hosts > 1 && facts.has_host_windows, route, facts);
}
Fit with_window(const Route& route, const PlanFacts& facts, bool) { return in_host_memory(facts.shares_memory, route, facts); }
Fit with_messages(const Route& route, const PlanFacts& facts, bool) {
  return in_host_memory(!facts.shares_memory, route, facts);
}
Fit on_a_ring(const Route& route, const PlanFacts& facts, bool) {
  return in_host_memory(!facts.shares_memory && facts.sums_can_travel && facts.ranks > 2, route, facts);
}

bool has_gpus_joined(const PlanFacts& facts) { return facts.on_gpu && facts.has_nccl; }

Fit with_nccl(const Route&, const PlanFacts& facts, bool needs_order) {
  if (!has_gpus_joined(facts) || !kernels_sum(facts.dtype, facts.op, facts.ranks)) return Fit::kNone;
  return facts.is_encoded || needs_order ? Fit::kGood : Fit::kIfAsked;
}

Fit with_nccl_on_hosts(const Route&, const PlanFacts& facts, bool) {
  const bool is_possible = has_gpus_joined(facts) && facts.hosts > 1 && facts.most_on_a_host > 1 && facts.is_encoded &&
                           kernels_sum(facts.dtype, facts.op, std::max(facts.hosts, facts.most_on_a_host));
  return is_possible ? Fit::kGood : Fit::kNone;
}

Fit of_nccl_itself(const Route&, const PlanFacts& facts, bool needs_order) {
  const bool is_possible = has_gpus_joined(facts) && !facts.is_encoded && !needs_order && nccl_sums(facts.dtype, facts.op);
  return is_possible ? Fit::kGood : Fit::kNone;
}

constexpr AllreducePattern kPatterns[] = {
    {{Pattern::kGather, Levels::kHierarchical, Carrier::kMessages},
     "The ranks of each host add up in their memory first; then hosts send their sums to all other hosts. What "
     "crosses the network does not grow with the ranks of a host.",
     Algorithm::kHierarchical,
     with_host_windows,
     by_hierarchy,
     allreduce_by_hierarchy},
    {{Pattern::kScatter, Levels::kHierarchical, Carrier::kMessages},
     "The ranks of each host add up in their memory first; then each host gets a slice from all others, adds it up, "
     "and sends the sum back. It sends least over the network.",
     Algorithm::kHierarchical,
     with_host_windows,
     by_hierarchy,
     allreduce_by_hierarchy},
    {{Pattern::kGather, Levels::kFlat, Carrier::kWindow},
     "All ranks share memory: each reads what all the others have put there and adds it up. One round, so it suits "
     "few ranks and small sizes.",
     Algorithm::kGather,
     with_window,
     in_window,
     allreduce_through_window},
    {{Pattern::kScatter, Levels::kFlat, Carrier::kWindow},
     "All ranks share memory: each adds up one slice for all, and then reads the other slices. Two rounds, but no "
     "number is added up twice.",
     Algorithm::kScatter,
     with_window,
     in_window,
     allreduce_through_window},
    {{Pattern::kGather, Levels::kFlat, Carrier::kMessages},
     "Every rank sends its numbers to every other. One round, so it suits small sizes, for which waiting costs most, "
     "and two ranks, which send as much either way.",
     Algorithm::kGather,
     with_messages,
     by_exchange,
     allreduce_by_exchange},
    {{Pattern::kScatter, Levels::kFlat, Carrier::kMessages},
     "Every rank gets one slice from all others, adds it up, and sends the sum back. Two rounds, but with more than "
     "two ranks fewer bytes cross the network.",
     Algorithm::kScatter,
     with_messages,
     by_exchange,
     allreduce_by_exchange},
    {{{"ring"}, Levels::kFlat, Carrier::kMessages},
     "Sums go from rank to rank, host after host, and then the results. Each host sends to one other only, but every "
     "rank is a round or two: it suits large sizes.",
     {"ring"},
     on_a_ring,
     around_ring,
     allreduce_around_ring},
    {{Pattern::kGather, Levels::kHierarchical, Carrier::kNccl},
     "GPUs of each host add up first; then a GPU of each host sends its part to all other hosts, and gives what arrives "
     "to the GPUs of its host.",
     Algorithm::kHierarchical,
     with_nccl_on_hosts,
     between_hosts_gpus,
     allreduce_by_hierarchy},
    {{Pattern::kScatter, Levels::kHierarchical, Carrier::kNccl},
     "GPUs of each host add up first; then a GPU of each host adds up a slice for all hosts, and the sums go to all GPUs.",
     Algorithm::kHierarchical,
     with_nccl_on_hosts,
     between_hosts_gpus,
     allreduce_by_hierarchy},
    {{Pattern::kGather, Levels::kFlat, Carrier::kNccl},
     "Every GPU sends its numbers to every other, and adds up what arrives. One round.",
     Algorithm::kGather,
     with_nccl,
     between_gpus,
     allreduce_by_exchange},
    {{Pattern::kScatter, Levels::kFlat, Carrier::kNccl},
     "Every GPU gets one slice from all others, adds it up, and sends the sum back. Two rounds, but fewer bytes.",
     Algorithm::kScatter,
     with_nccl,
     between_gpus,
     allreduce_by_exchange},
    {{Pattern::kLibrary, Levels::kFlat, Carrier::kNccl},
     "NCCL's own allreduce, of numbers as they are.",
     Algorithm::kAuto,
     of_nccl_itself,
     by_nccl_itself,
     nullptr,
     allreduce_by_nccl},
};

}  // namespace

std::span<const AllreducePattern> allreduce_patterns() { return kPatterns; }

const AllreducePattern& pattern_of(const Route& route) {
  const auto is_it = [&](const AllreducePattern& pattern) {
    return pattern.route.pattern == route.pattern && pattern.route.levels == route.levels &&
           pattern.route.carrier == route.carrier;
  };
  return *std::find_if(std::begin(kPatterns), std::end(kPatterns), is_it);
}

}  // namespace hvd
