#include "base/cpu_time.h"

#include <pthread.h>

#include <ctime>

namespace hvd {
namespace {

std::chrono::nanoseconds read(clockid_t clock) {
  timespec used{};
  if (clock_gettime(clock, &used) != 0) return {};
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

}  // namespace

std::chrono::nanoseconds cpu_time_of_this_thread() { return read(CLOCK_THREAD_CPUTIME_ID); }

std::chrono::nanoseconds cpu_time_of(std::thread& thread) {
  clockid_t clock;
  if (!thread.joinable() || pthread_getcpuclockid(thread.native_handle(), &clock) != 0) return {};
  return read(clock);
}

}  // namespace hvd
