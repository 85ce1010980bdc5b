// Handles: what a submission returns, and how a caller learns that it is done and gets the result.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "base/futex.h"
#include "base/mutex.h"
#include "device/device.h"
#include "schedule/result_memory.h"

namespace hvd {

// What an operation leaves behind besides what it wrote into the caller's tensors.
struct Result {
  // allgather: first dimensions, tensor by tensor and in that by rank; alltoall: rows received by rank; join: the last
  // rank; a process set's id where one was added
  std::vector<int64_t> rows;
  // allgather, alltoall: what was received, tensor by tensor at multiples of 16 bytes, owned by the core
  std::shared_ptr<std::byte[]> data;
  size_t bytes = 0;
  bool is_completed = false;  // see Item

  // Of an operation on a GPU, which may still be under way there: the data is of its memory.
  Device* device = nullptr;  // null: it was in CPU memory, and is done
  Event done;
  std::shared_ptr<LentMemory> lent;

  // Any thread. Has the stream go on only when the operation is done; nothing where it was in CPU memory.
  void order(Stream stream) const;
  // Copies some of the data to the GPU's or the host's memory when the operation is done; the stream does it. Keeps the data
  // until then. Throws InvalidArgument for what is not there.
  void copy_to(size_t offset, void* to, size_t count, Stream stream) const;
};

// Thread-safe.
class HandleTable {
 public:
  // Handles are positive. 0 stands for an operation nobody waits for: completing it does nothing.
  int64_t open() EXCLUDES(mutex_);
  void complete(int64_t handle, Result result) EXCLUDES(mutex_);
  void fail(int64_t handle, const Failure& error) EXCLUDES(mutex_);
  // Has those that wait for a result, or to be released, go on without one. Nothing if the handle is unknown.
  void release(int64_t handle) EXCLUDES(mutex_);

  // These throw InvalidArgument for a handle that does not exist (any more).
  // Whether wait() would return at once.
  bool has_result(int64_t handle) EXCLUDES(mutex_);
  // And on a GPU, whether that is done too.
  bool is_done(int64_t handle) EXCLUDES(mutex_);
  // Sleeps until the operation is done, or on a GPU given to it, and forgets the handle, or until `timeout` has passed, and
  // then returns nothing. Throws InternalError if the operation failed.
  std::optional<Result> wait(int64_t handle, std::chrono::microseconds timeout) EXCLUDES(mutex_);
  enum class Seen { kResult, kReleased, kNothing };
  // Sleeps until wait() would return at once, the handle has been released since the last time, or `timeout` has passed.
  Seen wait_for_result(int64_t handle, std::chrono::microseconds timeout) EXCLUDES(mutex_);

 private:
  struct Entry {
    bool is_done = false;
    Failure error;
    Result result;
    bool is_released = false;
  };
  void finish(int64_t handle, Entry entry) EXCLUDES(mutex_);
  // Sleeps until `look`, which is called with the entry and the mutex held, returns true, or `timeout` has passed.
  template <typename Look>
  void sleep_until(int64_t handle, std::chrono::microseconds timeout, Look look) EXCLUDES(mutex_);

  FutexCounter finished_;
  Mutex mutex_;
  int64_t last_ GUARDED_BY(mutex_) = 0;
  std::unordered_map<int64_t, Entry> entries_ GUARDED_BY(mutex_);
};

}  // namespace hvd
