// What every collective runs with. Belongs to one engine thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/simd.h"
#include "transport/transport.h"

namespace hvd {

// Bytes that are allocated when first needed, grow, and are never filled for their own sake.
class Scratch {
 public:
  std::byte* at_least(size_t bytes) {
    if (bytes > bytes_) {
      memory_.reset(new std::byte[bytes]);  // uninitialised, unlike make_unique
      bytes_ = bytes;
    }
    return memory_.get();
  }

 private:
  std::unique_ptr<std::byte[]> memory_;
  size_t bytes_ = 0;
};

struct CollectiveContext {
  Transport& transport;
  SimdLevel simd;
  uint32_t window_steps = 0;  // steps done through the window so far, the same on every rank
  int64_t wire_bytes = 0;     // handed to other ranks so far
  Scratch send, receive, result;
};

}  // namespace hvd
