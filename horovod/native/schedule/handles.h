// Handles: what a submission returns, and how a caller learns that it is done. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/futex.h"
#include "base/mutex.h"

namespace hvd {

// What an operation leaves behind besides what it wrote into the caller's tensors.
struct Result {
  std::vector<int64_t> rows;         // allgather: first dimension by rank
  std::shared_ptr<std::byte[]> data; // allgather: the concatenation, owned by the core
  size_t bytes = 0;
};

class HandleTable {
 public:
  int open() EXCLUDES(mutex_);
  void complete(int handle, Result result) EXCLUDES(mutex_);
  void fail(int handle, const std::string& error) EXCLUDES(mutex_);

  // Both throw InvalidArgument for a handle that does not exist (any more).
  bool is_done(int handle) EXCLUDES(mutex_);
  // Sleeps until the operation is done and forgets the handle. Throws InternalError if the operation failed.
  Result wait(int handle) EXCLUDES(mutex_);

 private:
  struct Entry {
    bool is_done = false;
    std::string error;
    Result result;
  };
  void finish(int handle, Entry entry) EXCLUDES(mutex_);

  FutexCounter finished_;
  Mutex mutex_;
  int last_ GUARDED_BY(mutex_) = 0;
  std::unordered_map<int, Entry> entries_ GUARDED_BY(mutex_);
};

}  // namespace hvd
