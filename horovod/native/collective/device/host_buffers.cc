#include "collective/device/host_buffers.h"

#include <algorithm>
#include <bit>

namespace hvd {
namespace {

constexpr size_t kLeastBytes = size_t{64} << 10;  // sizes are powers of two, so that most are found again

}  // namespace

DeviceMemory BufferPool::take(size_t bytes) {
  Buffer* best = nullptr;
  for (Buffer& buffer : buffers_) {
    if (buffer.is_taken || buffer.bytes < bytes || (best && best->bytes <= buffer.bytes)) continue;
    if (buffer.busy && device_.is_done(buffer.busy)) buffer.busy = nullptr;
    if (!buffer.busy) best = &buffer;
  }
  if (best == nullptr) {
    const size_t rounded = std::bit_ceil(std::max(bytes, kLeastBytes));
    buffers_.push_back(
        {kind_ == MemoryKind::kGpu ? device_.allocate(rounded) : device_.allocate_pinned(rounded), rounded, false, nullptr});
    best = &buffers_.back();
  }
  best->is_taken = true;
  return best->memory;
}

void BufferPool::release(const Event& event) {
  for (Buffer& buffer : buffers_) {
    if (!buffer.is_taken) continue;
    buffer.is_taken = false;
    buffer.busy = event;
  }
}

}  // namespace hvd
