// What Python calls a World: a transport, and the MPI behind it. Both are left alone in a forked child.
#pragma once

#include <utility>

#include "base/process.h"
#include "transport/open.h"

namespace hvd {

struct World {
  explicit World(OpenedTransport transport) : opened(std::move(transport)) {}
  World(const World&) = delete;
  ~World() {
    if (!process.is_this()) static_cast<void>(opened.transport.release());
  }
  OpenedTransport opened;
  OwnProcess process;
};

}  // namespace hvd
