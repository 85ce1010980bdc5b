// Handles: what a submission returns, and how a caller learns that it is done. Thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/futex.h"
#include "base/mutex.h"

namespace hvd {

// What an operation leaves behind besides what it wrote into the caller's tensors.
struct Result {
  // allgather: first dimensions, tensor by tensor and in that by rank; alltoall: rows received by rank; join: the last
  // rank; a process set's id where one was added
  std::vector<int64_t> rows;
  std::shared_ptr<std::byte[]> data; // allgather, alltoall: what was received, tensor by tensor at multiples of 16 bytes, owned by the core
  size_t bytes = 0;
};

class HandleTable {
 public:
  // Handles are positive. 0 stands for an operation nobody waits for: completing it does nothing.
  int64_t open() EXCLUDES(mutex_);
  void complete(int64_t handle, Result result) EXCLUDES(mutex_);
  void fail(int64_t handle, const std::string& error) EXCLUDES(mutex_);

  // Both throw InvalidArgument for a handle that does not exist (any more).
  bool is_done(int64_t handle) EXCLUDES(mutex_);
  // Sleeps until the operation is done and forgets the handle, or until `timeout` has passed, and then returns nothing.
  // Throws InternalError if the operation failed.
  std::optional<Result> wait(int64_t handle, std::chrono::microseconds timeout) EXCLUDES(mutex_);

 private:
  struct Entry {
    bool is_done = false;
    std::string error;
    Result result;
  };
  void finish(int64_t handle, Entry entry) EXCLUDES(mutex_);

  FutexCounter finished_;
  Mutex mutex_;
  int64_t last_ GUARDED_BY(mutex_) = 0;
  std::unordered_map<int64_t, Entry> entries_ GUARDED_BY(mutex_);
};

}  // namespace hvd
