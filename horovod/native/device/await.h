// How a rank waits for its GPU.
#pragma once

#include <chrono>
#include <initializer_list>

#include "device/device.h"
#include "device/progress_callback.h"

namespace hvd {

// Returns when the event has come. That may be far away: it is when the caller's stream has done all that came before.
void await(Device& device, const Event& event, const ProgressCallback& attend);

// Returns true when the GPU has done what the streams were given, false when that takes too long: after a failure it may wait
// for a peer that has gone.
bool await_for_a_while(Device& device, std::initializer_list<Stream> streams, std::chrono::seconds patience);

}  // namespace hvd
