// A counter that threads and processes wait on: spin for some microseconds, then sleep in the kernel.
//
// Lives in ordinary or shared memory, zero-initialised is ready for use. The count wraps; compare with `reached`.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace hvd {

struct alignas(64) FutexCounter {
  std::atomic<uint32_t> count{0};
  std::atomic<uint32_t> sleepers{0};
};

// True if `count` is at or past `target`, for counters less than 2^31 apart.
inline bool reached(uint32_t count, uint32_t target) { return static_cast<int32_t>(count - target) >= 0; }

// Adds 1 and wakes whoever sleeps on the counter. Everything written before is visible to whoever sees the new count.
void advance(FutexCounter& counter);

// About 10 us: long enough for a peer on another core to answer, short against a scheduling slice.
inline constexpr int kDefaultSpins = 400;

// Waits until the counter is no longer `seen`, at most `timeout`. Returns the count. May return early.
uint32_t wait_for_change(FutexCounter& counter, uint32_t seen, std::chrono::microseconds timeout,
                         int spins = kDefaultSpins);

}  // namespace hvd
