// Memory for results that the core owns: used again when nobody refers to it any more.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <new>
#include <vector>

#include "base/memory.h"
#include "base/mutex.h"
#include "base/process.h"
#include "device/device.h"

namespace hvd {

// Memory for results that are in CPU memory: used again when nobody refers to it any more. To large memory the kernel gives
// its pages one fault at a time, which takes as long as compressed codes take on a 1 Gbit/s cable. Thread-safe.
//
// LentMemory is the same for a GPU, where freeing waits, so that it is by number what is kept, and freed by whoever may wait.
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

// Memory of the GPU for results: used again when nobody holds it any more, as allocating and freeing wait for the whole GPU;
// and kept while callers' streams read from it. Thread-safe.
class LentMemory : public std::enable_shared_from_this<LentMemory> {
 public:
  // Null for no bytes. Whoever holds it gives it back when the GPU does not use it any more.
  DeviceMemory take(Device& device, size_t bytes) EXCLUDES(mutex_);
  // Holds it until the event has come.
  void keep(Device& device, Event until, std::shared_ptr<void> memory) EXCLUDES(mutex_);
  // Lets go of what is held longer than that.
  void sweep() EXCLUDES(mutex_);
  bool keeps_any() const EXCLUDES(mutex_);
  // What nobody holds and is too much to keep. To free it waits for the whole GPU, so whoever may wait for that does it.
  bool has_surplus() const EXCLUDES(mutex_);
  void free_surplus() EXCLUDES(mutex_);
  // Frees all that nobody holds.
  void free_idle() EXCLUDES(mutex_);

 private:
  struct Block {
    DeviceMemory memory;
    size_t bytes;
  };
  struct Loan {
    Device* device;
    Event until;
    std::shared_ptr<void> memory;
  };
  DeviceMemory lend(Block block);
  void give_back(Block block) EXCLUDES(mutex_);

  mutable Mutex mutex_;
  std::vector<Block> idle_ GUARDED_BY(mutex_), surplus_ GUARDED_BY(mutex_);
  std::deque<Loan> loans_ GUARDED_BY(mutex_);
};

}  // namespace hvd
