// Streams and events of a GPU, as the core passes them on.
#pragma once

#include <memory>

namespace hvd {

using Stream = void*;                 // cudaStream_t; null is the default stream
using Event = std::shared_ptr<void>;  // owns a cudaEvent_t; null: nothing to wait for

}  // namespace hvd
