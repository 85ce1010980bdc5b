// What Python calls a World: a transport, and the MPI behind it.
#pragma once

#include "transport/open.h"

namespace hvd {

struct World {
  OpenedTransport opened;
};

}  // namespace hvd
