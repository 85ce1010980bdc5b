// Memory for results that are in CPU memory: used again when nobody refers to it any more. To large memory the kernel gives
// its pages one fault at a time, which takes as long as compressed codes take on a 1 Gbit/s cable. Thread-safe.
//
// LentMemory is the same for a GPU, where freeing waits, so that it is by number what is kept, and freed by whoever may wait.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <new>

#include "base/memory.h"
#include "base/mutex.h"
#include "base/process.h"

namespace hvd {

class ResultMemory : public std::enable_shared_from_this<ResultMemory> {
 public:
  // Smaller results come from malloc, which keeps such memory itself.
  static constexpr size_t kSmallest = size_t{1} << 20;
  // What is kept at most, the latest given back. Enough for two results of 100 MB of a program that keeps one until it has the
  // next, or for the gradients of 64 million parameters; and little beside what a program that has such results needs.
  static constexpr size_t kMostIdle = size_t{256} << 20;

  // Uninitialised. Whoever lets go of it last gives it back, on any thread, also after this object's end and in a forked child.
  std::shared_ptr<std::byte[]> take(size_t bytes) EXCLUDES(mutex_);
  size_t idle_bytes() const EXCLUDES(mutex_);

 private:
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t{kAlign}); }
  };
  struct Block {
    std::unique_ptr<std::byte[], Free> memory;
    size_t bytes = 0;
  };
  Block found(size_t bytes) EXCLUDES(mutex_);
  void give_back(Block block) EXCLUDES(mutex_);

  const OwnProcess process_;
  mutable Mutex mutex_;
  std::deque<Block> idle_ GUARDED_BY(mutex_);  // in the order in which they were given back
  size_t idle_bytes_ GUARDED_BY(mutex_) = 0;
};

}  // namespace hvd
