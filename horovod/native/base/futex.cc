#include "base/futex.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>

namespace hvd {
namespace {

long futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* timeout) {
  return syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value, timeout, nullptr, 0);
}

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

void advance(FutexCounter& counter) {
  // seq_cst on both sides: either the sleeper sees the new count, or this thread sees the sleeper.
  counter.count.fetch_add(1, std::memory_order_seq_cst);
  if (counter.sleepers.load(std::memory_order_seq_cst) != 0) {
    futex(counter.count, FUTEX_WAKE, INT_MAX, nullptr);
  }
}

uint32_t wait_for_change(FutexCounter& counter, uint32_t seen, std::chrono::microseconds timeout, const Patience& patience) {
  for (int i = 0; i < patience.spins; ++i) {
    const uint32_t now = counter.count.load(std::memory_order_acquire);
    if (now != seen) return now;
    relax();
  }
  if (const auto yielding = std::min(patience.yielding, timeout); yielding.count() > 0) {
    const auto deadline = std::chrono::steady_clock::now() + yielding;
    do {
      sched_yield();
      const uint32_t now = counter.count.load(std::memory_order_acquire);
      if (now != seen) return now;
    } while (std::chrono::steady_clock::now() < deadline);
    timeout -= yielding;
  }
  const auto micros = timeout.count();
  if (micros <= 0) return counter.count.load(std::memory_order_acquire);
  const timespec limit{static_cast<time_t>(micros / 1000000), static_cast<long>(micros % 1000000) * 1000};
  counter.sleepers.fetch_add(1, std::memory_order_seq_cst);
  if (counter.count.load(std::memory_order_seq_cst) == seen) {
    futex(counter.count, FUTEX_WAIT, seen, &limit);
  }
  counter.sleepers.fetch_sub(1, std::memory_order_seq_cst);
  return counter.count.load(std::memory_order_acquire);
}

}  // namespace hvd
