// Ranks as threads of one process: the shared-memory transport over ordinary memory, so that tests of everything above it
// need no launcher.
#pragma once

#include <memory>
#include <vector>

#include "transport/transport.h"

namespace hvd {

// Transports of ranks 0..size-1. `host_of` has the number of each rank's host, numbered in the order of their first ranks;
// empty: all are on one. Ranks of one host share a window if `with_windows`, and exchange messages only if not; hosts
// exchange messages.
std::vector<std::unique_ptr<Transport>> make_local_transports(int size, bool with_windows, const std::vector<int>& host_of);

}  // namespace hvd
