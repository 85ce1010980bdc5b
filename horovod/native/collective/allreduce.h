// Allreduce of a bucket, by the route that fits its size, its codec and where the ranks are. The routes are drawn in
// docs/architecture.md; all give every rank the same bits.
#pragma once

#include "collective/bucket.h"
#include "collective/context.h"
#include "collective/route.h"

namespace hvd {

void allreduce(CollectiveContext& context, Bucket& bucket, Route route);

// The two families of routes.
void allreduce_through_window(CollectiveContext& context, Bucket& bucket, bool gather);
void allreduce_by_exchange(CollectiveContext& context, Bucket& bucket, bool gather);

}  // namespace hvd
