// Memory for results that the core owns. A block is used again when it has no more references.
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

// CPU memory for results. Page faults in fresh memory take as long as the transfer of compressed codes at 1 Gbit/s, so large
// blocks are used again. Thread-safe.
//
// LentMemory does the same on a GPU. Since freeing waits there, it limits blocks by number and lets the engine free them.
class ResultMemory : public std::enable_shared_from_this<ResultMemory> {
 public:
  // Smaller results come from malloc, which keeps such memory itself.
  static constexpr size_t kSmallest = size_t{1} << 20;
  // Most bytes that are kept idle: two results of 100 MB, for a program that keeps one until it has the next, or the gradients
  // of 64 million parameters. A program with such results needs far more memory itself.
  static constexpr size_t kMostIdle = size_t{256} << 20;

  // Uninitialised. The last reference may be released on any thread, after this object's end, and in a forked child.
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
  std::deque<Block> idle_ GUARDED_BY(mutex_);  // the earliest given back first
  size_t idle_bytes_ GUARDED_BY(mutex_) = 0;
};

// GPU memory for results. It is used again, since allocating and freeing wait for the whole GPU. It stays alive while callers'
// streams read from it. Thread-safe.
class LentMemory : public std::enable_shared_from_this<LentMemory> {
 public:
  // Null for 0 bytes. The holder must keep the reference until the GPU no longer uses the memory.
  DeviceMemory take(Device& device, size_t bytes) EXCLUDES(mutex_);
  // Holds a reference until the event has come and sweep() is called.
  void keep(Device& device, Event until, std::shared_ptr<void> memory) EXCLUDES(mutex_);
  void sweep() EXCLUDES(mutex_);
  bool keeps_any() const EXCLUDES(mutex_);
  // Surplus: idle blocks beyond the limit. Freeing them waits for the whole GPU, so the caller chooses the time.
  bool has_surplus() const EXCLUDES(mutex_);
  void free_surplus() EXCLUDES(mutex_);
  // Frees all idle blocks.
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
