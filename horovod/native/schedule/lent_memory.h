// Memory of the GPU for results: used again when nobody holds it any more, as allocating and freeing wait for the whole GPU;
// and kept while callers' streams read from it. Thread-safe.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "device/device.h"

namespace hvd {

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
