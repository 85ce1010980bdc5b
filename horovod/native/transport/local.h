// Transports without a launcher: a world of one rank, and ranks that are threads of one process.
#pragma once

#include <memory>
#include <vector>

#include "transport/transport.h"

namespace hvd {

// The transport of a world of one.
std::unique_ptr<Transport> make_self_transport();

// Makes transports of ranks 0..size-1 that are threads of one process: the shared-memory transport over ordinary memory, so
// that tests need no launcher. `host_of` is the number of each rank's host, numbered in the order of their first ranks; empty:
// all ranks are on one host. Ranks of a host share a window if `with_windows`; otherwise they exchange messages, as hosts do.
std::vector<std::unique_ptr<Transport>> make_local_transports(int size, bool with_windows, const std::vector<int>& host_of);

}  // namespace hvd
