// A stream is a thread that does its tasks one by one; an event marks a point in its queue.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "state.h"

namespace emulated_cuda {

// One record of an event. A waiting stream holds it, so that recording the event again does not affect the wait.
struct Moment {
  std::mutex mutex;
  std::condition_variable reached;
  bool has_come = false;
  std::chrono::steady_clock::time_point time;

  void come();
  void wait();
  bool is_there();
};

}  // namespace emulated_cuda

struct CUstream_st {
  explicit CUstream_st(int device);
  const int device;

  void enqueue(std::function<void()> task);
  std::shared_ptr<emulated_cuda::Moment> mark();  // is reached when all earlier tasks are done
  bool is_idle();                                 // all tasks are done
  void end();                                     // ends after the tasks in the queue; frees the stream

 private:
  void run();
  std::mutex mutex_;
  std::condition_variable given_;
  std::deque<std::function<void()>> tasks_;
  bool is_busy_ = false;
  bool is_ending_ = false;
};

struct CUevent_st {
  int device = 0;
  bool has_time = true;
  std::mutex mutex;
  std::shared_ptr<emulated_cuda::Moment> moment;  // null: never recorded
  std::shared_ptr<emulated_cuda::Moment> now();
};

namespace emulated_cuda {

// The stream itself, or for null the current device's default stream. Null if it belongs to another device.
CUstream_st* usable(cudaStream_t stream);

}  // namespace emulated_cuda
