// The transport of ranks that share memory: processes of one host (an MPI shared window) or threads of one process (`local`).
//
// Each rank owns one segment. Other ranks write only to their own rings in it, and to its doorbell.
//
//   segment := header ring_control[2 * size] message_bytes[size] bulk_bytes[size] window
//
// The first `size` ring controls belong to the message rings, by sender; the others to the bulk rings.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace hvd {

// Bytes of one rank's segment in a job of `size` ranks. Segments must be aligned to 64 bytes.
size_t shared_memory_bytes(int size);
// Initialises a segment. Every rank prepares its own, and all must be prepared before any is used.
void prepare_shared_memory(std::byte* segment, int size);

// `segments`, by rank, must outlive the transport; `keep_alive` may own them. Without `with_window` the window is hidden, so
// that tests reach the routes of ranks without shared memory.
std::unique_ptr<Transport> make_shared_memory_transport(std::string name, const Topology& topology,
                                                        std::vector<std::byte*> segments, std::shared_ptr<void> keep_alive,
                                                        bool with_window = true);

}  // namespace hvd
