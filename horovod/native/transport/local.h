// Ranks as threads of one process: the shared-memory transport over ordinary memory, so that tests of everything above it
// need no launcher. A topology of several hosts can be claimed, to test what depends on it.
#pragma once

#include <memory>
#include <vector>

#include "transport/transport.h"

namespace hvd {

// Transports of ranks 0..size-1. `with_window` false makes ranks exchange messages only, as between hosts.
std::vector<std::unique_ptr<Transport>> make_local_transports(int size, bool with_window);

}  // namespace hvd
