// Another rank as the shared-memory transport sees it: the rings between the two, and what waits for room in them.
#pragma once

#include <deque>
#include <vector>

#include "transport/ring.h"
#include "transport/transfer.h"

namespace hvd {

struct SharedMemoryPeer {
  struct Moving {
    Ticket ticket;
    std::byte* data;
    size_t bytes;  // still to move
  };

  std::byte* segment = nullptr;
  Ring messages_out, messages_in, bulk_out, bulk_in;
  std::vector<std::byte> outbox;  // posted, not yet in the ring
  size_t outbox_sent = 0;
  std::vector<std::byte> inbox;  // of the message being received
  uint32_t inbox_wanted = 0;
  std::deque<Moving> sending, receiving;
  bool pid_is_visible = false;  // its death can be noticed
};

}  // namespace hvd
