// The window among the ranks of each host, where a job has several hosts and some have several ranks.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "transport/transport.h"

namespace hvd {

// Of one rank's segment. Segments begin at multiples of 64.
size_t host_window_bytes();

// Gives a transport the window that lies in these segments, by local rank, which all its ranks have prepared. Whoever waits
// in it keeps the transport's transfers going.
void add_host_window(Transport& transport, std::vector<std::byte*> segments, std::shared_ptr<void> keep_alive);

}  // namespace hvd
