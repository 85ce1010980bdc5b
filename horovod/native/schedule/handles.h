// Handles: numbers by which callers wait for their submissions and get the results.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "base/futex.h"
#include "base/mutex.h"
#include "device/device.h"
#include "schedule/result_memory.h"

namespace hvd {

// The result of an operation, apart from the caller's tensors.
struct Result {
  // allgather: first dimensions, by tensor, then by rank; alltoall: received rows by rank; join: the last rank;
  // adding a process set: its id; missing gradients: decisions
  std::vector<int64_t> rows;
  // allgather, alltoall: the received data, each tensor at a multiple of 16 bytes; tune: the settings. Owned by the core
  std::shared_ptr<std::byte[]> data;
  size_t bytes = 0;
  bool is_completed = false;  // see Item

  // For an operation on a GPU, which may still be under way; `data` is GPU memory.
  Device* device = nullptr;  // null: the operation was in CPU memory, and is done
  Event done;
  std::shared_ptr<LentMemory> lent;

  // Any thread. Makes the stream wait until the operation is done on the GPU; a no-op for CPU memory.
  void order(Stream stream) const;
  // Any thread. Enqueues a copy of `count` bytes to GPU or host memory, and keeps the data until it is done. Throws
  // InvalidArgument if the data is in CPU memory or too short.
  void copy_to(size_t offset, void* to, size_t count, Stream stream) const;
};

// Thread-safe.
class HandleTable {
 public:
  // Handles are positive. 0 is an operation without a caller: completing it does nothing.
  int64_t open() EXCLUDES(mutex_);
  void complete(int64_t handle, Result result) EXCLUDES(mutex_);
  void fail(int64_t handle, const Failure& error) EXCLUDES(mutex_);
  // Ends wait_for_result() without a result; a no-op if the handle is unknown.
  void release(int64_t handle) EXCLUDES(mutex_);

  // The following throw InvalidArgument if the handle is unknown or forgotten.
  // Whether wait() would return at once.
  bool has_result(int64_t handle) EXCLUDES(mutex_);
  // Whether the operation is done, also on the GPU.
  bool is_done(int64_t handle) EXCLUDES(mutex_);
  // Sleeps until the operation is done, or enqueued on a GPU, and forgets the handle. Returns nothing after `timeout`. Throws
  // InternalError if the operation failed.
  std::optional<Result> wait(int64_t handle, std::chrono::microseconds timeout) EXCLUDES(mutex_);
  enum class Seen { kResult, kReleased, kNothing };
  // Sleeps until wait() would return at once, the handle has been released since the last call, or `timeout` has passed.
  Seen wait_for_result(int64_t handle, std::chrono::microseconds timeout) EXCLUDES(mutex_);

 private:
  struct Entry {
    bool is_done = false;
    Failure error;
    Result result;
    bool is_released = false;
  };
  void finish(int64_t handle, Entry entry) EXCLUDES(mutex_);
  Entry& known(int64_t handle) REQUIRES(mutex_);
  // Sleeps until `look` returns true or `timeout` has passed. Calls `look` with the entry while it holds the mutex.
  template <typename Look>
  void sleep_until(int64_t handle, std::chrono::microseconds timeout, Look look) EXCLUDES(mutex_);

  FutexCounter finished_;
  Mutex mutex_;
  int64_t last_ GUARDED_BY(mutex_) = 0;
  std::unordered_map<int64_t, Entry> entries_ GUARDED_BY(mutex_);
};

}  // namespace hvd
