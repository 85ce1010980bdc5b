// What a rank does while it waits for its GPU or for NCCL: never without looking at the others, as what it waits for may depend
// on one that has gone.
#pragma once

#include <functional>

namespace hvd {

// Called again and again: transfers go on, others are served. Throws InternalError when a rank has given up or something has
// failed on a GPU. Engine thread only.
using ProgressCallback = std::function<void()>;

}  // namespace hvd
