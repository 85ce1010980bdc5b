// Allreduce of a bucket, by the route that fits its size, its codec and where the ranks are. The routes are drawn in
// docs/architecture.md; all give every rank the same bits.
#pragma once

#include <string_view>

#include "collective/bucket.h"
#include "collective/context.h"

namespace hvd {

enum class Route {
  kAlone,            // one rank: nothing crosses a wire
  kWindowGather,     // shared memory: every rank reads all contributions
  kWindowScatter,    // shared memory: each rank reduces a part, all read the results
  kExchangeGather,   // messages: contributions go to all
  kExchangeScatter,  // messages: contributions go to the part's owner, results to all
  kHierarchicalGather,   // shared memory inside each host; across, contributions of hosts go to all hosts
  kHierarchicalScatter,  // shared memory inside each host; across, to the slice's owner, results to all
};

std::string_view name_of(Route route);

struct RouteFacts {
  int ranks = 1;
  bool shares_memory = false;
  int hosts = 1;
  bool has_host_windows = false;
  bool is_encoded = false;
  int64_t bytes = 0;  // of the bucket's tensors, not encoded
};

// Every rank computes the same route from the same facts.
//
// Gather quantises once, moves (n-1)/n * n times a part and takes one round: right for two ranks with a codec (equal bytes,
// half the error) and where a round trip costs more than the bytes. Scatter moves each byte about twice.
Route choose_route(const RouteFacts& facts);

// Reduces tensors of one dtype as if they were one. Returns how many finite values a codec's range cut off.
int64_t allreduce(CollectiveContext& context, std::span<const BucketTensor> tensors, const BucketReduction& reduction,
                  Route route);

// The three families of routes.
int64_t allreduce_through_window(CollectiveContext& context, std::span<const BucketTensor> tensors,
                                 const BucketReduction& reduction, bool gather);
int64_t allreduce_by_exchange(CollectiveContext& context, std::span<const BucketTensor> tensors,
                              const BucketReduction& reduction, bool gather);
int64_t allreduce_by_hierarchy(CollectiveContext& context, std::span<const BucketTensor> tensors,
                               const BucketReduction& reduction, bool gather);

}  // namespace hvd
