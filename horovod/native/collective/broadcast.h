// Broadcast: the root's bytes on every rank, down a binomial tree in chunks.
#pragma once

#include "collective/context.h"

namespace hvd {

// On the root, `data` is sent; elsewhere it is filled.
void broadcast(CollectiveContext& context, int root, void* data, size_t bytes);

}  // namespace hvd
