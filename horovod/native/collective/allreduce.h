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
};

std::string_view name_of(Route route);

struct RouteFacts {
  int ranks = 1;
  bool shares_memory = false;
  bool is_encoded = false;
  int64_t bytes = 0;  // of the bucket's tensors, not encoded
};

// Every rank computes the same route from the same facts.
//
// Gather quantises once, moves (n-1)/n * n times a part and takes one round: right for two ranks with a codec (equal bytes,
// half the error) and where a round trip costs more than the bytes. Scatter moves each byte about twice.
Route choose_route(const RouteFacts& facts);

void allreduce(CollectiveContext& context, Bucket& bucket, Route route);

// The two families of routes.
void allreduce_through_window(CollectiveContext& context, Bucket& bucket, bool gather);
void allreduce_by_exchange(CollectiveContext& context, Bucket& bucket, bool gather);

}  // namespace hvd
