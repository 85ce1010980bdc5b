// Memory for what is on its way between GPU and host, used again when the GPU has done with it.
#pragma once

#include <cstddef>
#include <vector>

#include "device/device.h"

namespace hvd {

enum class MemoryKind { kGpu, kPinned };

class BufferPool {
 public:
  // The device outlives the pool.
  BufferPool(Device& device, MemoryKind kind) : device_(device), kind_(kind) {}

  // For the operation under way. Whoever needs it for longer keeps what it is part of.
  DeviceMemory take(size_t bytes);
  // Ends the operation: all that was taken since is free when the event has come.
  void release(const Event& event);

 private:
  struct Buffer {
    DeviceMemory memory;
    size_t bytes = 0;
    bool is_taken = false;
    Event busy;  // null: nothing to wait for
  };

  Device& device_;
  const MemoryKind kind_;
  std::vector<Buffer> buffers_;
};

}  // namespace hvd
