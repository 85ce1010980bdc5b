#include "transport/ring.h"

#include <algorithm>
#include <cstring>

namespace hvd {

size_t Ring::write(const void* data, size_t bytes) {
  const uint64_t written = control_->written.load(std::memory_order_relaxed);
  const uint64_t read = control_->read.load(std::memory_order_acquire);
  const size_t count = std::min(bytes, capacity_ - static_cast<size_t>(written - read));
  if (count == 0) return 0;
  const size_t start = static_cast<size_t>(written) & (capacity_ - 1);
  const size_t first = std::min(count, capacity_ - start);
  std::memcpy(bytes_ + start, data, first);
  std::memcpy(bytes_, static_cast<const std::byte*>(data) + first, count - first);
  control_->written.store(written + count, std::memory_order_release);
  return count;
}

size_t Ring::read(void* data, size_t bytes) {
  const uint64_t read = control_->read.load(std::memory_order_relaxed);
  const uint64_t written = control_->written.load(std::memory_order_acquire);
  const size_t count = std::min(bytes, static_cast<size_t>(written - read));
  if (count == 0) return 0;
  const size_t start = static_cast<size_t>(read) & (capacity_ - 1);
  const size_t first = std::min(count, capacity_ - start);
  std::memcpy(data, bytes_ + start, first);
  std::memcpy(static_cast<std::byte*>(data) + first, bytes_, count - first);
  control_->read.store(read + count, std::memory_order_release);
  return count;
}

size_t Ring::readable() const {
  return static_cast<size_t>(control_->written.load(std::memory_order_acquire) -
                             control_->read.load(std::memory_order_relaxed));
}

}  // namespace hvd
