#include "schedule/result_memory.h"

#include <utility>
#include <vector>

namespace hvd {

std::shared_ptr<std::byte[]> ResultMemory::take(size_t bytes) {
  if (bytes < kSmallest) return std::shared_ptr<std::byte[]>(new std::byte[bytes]);  // uninitialised, unlike make_shared
  Block block = found(bytes);
  if (block.memory == nullptr) {
    block = {std::unique_ptr<std::byte[], Free>(static_cast<std::byte*>(::operator new[](bytes, std::align_val_t{kAlign}))),
             bytes};
  }
  std::byte* address = block.memory.get();
  // In a forked child nobody uses it again, and a thread that is not there may hold the mutex.
  return {address, [home = weak_from_this(), held = std::move(block)](std::byte*) mutable {
            if (const auto there = home.lock(); there != nullptr && there->process_.is_this())
              there->give_back(std::move(held));
          }};
}

// The smallest that is large enough, but not by more than a quarter, or large blocks would be held for small results.
ResultMemory::Block ResultMemory::found(size_t bytes) {
  MutexLock lock(mutex_);
  auto best = idle_.end();
  for (auto block = idle_.begin(); block != idle_.end(); ++block) {
    const bool fits = block->bytes >= bytes && block->bytes - bytes <= bytes / 4;
    if (fits && (best == idle_.end() || block->bytes <= best->bytes)) best = block;
  }
  if (best == idle_.end()) return {};
  Block block = std::move(*best);
  idle_.erase(best);
  idle_bytes_ -= block.bytes;
  return block;
}

void ResultMemory::give_back(Block block) {
  std::vector<Block> surplus;  // freed after the lock: that may take a while
  MutexLock lock(mutex_);
  idle_bytes_ += block.bytes;
  idle_.push_back(std::move(block));
  for (; idle_bytes_ > kMostIdle; idle_.pop_front()) {
    idle_bytes_ -= idle_.front().bytes;
    surplus.push_back(std::move(idle_.front()));
  }
}

size_t ResultMemory::idle_bytes() const {
  MutexLock lock(mutex_);
  return idle_bytes_;
}

}  // namespace hvd
