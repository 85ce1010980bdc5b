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

// How long a waiter stays awake before it sleeps in the kernel, from which waking takes tens of microseconds where an idle
// core has to be woken too. First it spins, which helps if the other side runs on another core; then it yields, which gives
// the core to whoever else wants it.
struct Patience {
  int spins = 400;  // about 10 us
  std::chrono::microseconds yielding{100};
};

// Waits until the counter is no longer `seen`, at most `timeout`. Returns the count. May return early.
uint32_t wait_for_change(FutexCounter& counter, uint32_t seen, std::chrono::microseconds timeout,
                         const Patience& patience = {});

}  // namespace hvd
