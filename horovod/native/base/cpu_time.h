// Processor time of threads.
#pragma once

#include <chrono>
#include <thread>

namespace hvd {

std::chrono::nanoseconds cpu_time_of_this_thread();
// 0 if the thread has ended.
std::chrono::nanoseconds cpu_time_of(std::thread& thread);

}  // namespace hvd
