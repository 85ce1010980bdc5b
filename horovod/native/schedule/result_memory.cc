#include "schedule/result_memory.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

namespace hvd {
namespace {

constexpr size_t kSmall = size_t{1} << 20;  // blocks up to this size serve any smaller result
// Most idle blocks. Hosts run ahead of GPUs and have many small results in flight, as of SyncBatchNorm.
constexpr size_t kMostSmallIdle = 128, kMostLargeIdle = 4;

// Removes the smallest block that fits, of equal ones the `latest` or the earliest given back. Nothing if none fits.
template <typename Blocks, typename Fits>
auto take_smallest(Blocks& idle, bool latest, Fits fits) -> std::optional<typename Blocks::value_type> {
  auto best = idle.end();
  for (auto block = idle.begin(); block != idle.end(); ++block) {
    const bool is_better = best == idle.end() || block->bytes < best->bytes || (latest && block->bytes == best->bytes);
    if (is_better && fits(block->bytes)) best = block;
  }
  if (best == idle.end()) return std::nullopt;
  auto block = std::move(*best);
  idle.erase(best);
  return block;
}

}  // namespace

std::shared_ptr<std::byte[]> ResultMemory::take(size_t bytes) {
  if (bytes < kSmallest) return std::shared_ptr<std::byte[]>(new std::byte[bytes]);  // uninitialised, unlike make_shared
  Block block = found(bytes);
  if (block.memory == nullptr) {
    block = {std::unique_ptr<std::byte[], Free>(static_cast<std::byte*>(::operator new[](bytes, std::align_val_t{kAlign}))),
             bytes};
  }
  std::byte* address = block.memory.get();
  // Not in a forked child: it does not use blocks again, and a thread that does not exist there may hold the mutex.
  return {address, [home = weak_from_this(), held = std::move(block)](std::byte*) mutable {
            if (const auto there = home.lock(); there != nullptr && there->process_.is_this())
              there->give_back(std::move(held));
          }};
}

// The smallest block that is large enough, at most by a quarter larger, so that small results do not hold large blocks.
ResultMemory::Block ResultMemory::found(size_t bytes) {
  MutexLock lock(mutex_);
  auto block = take_smallest(idle_, true, [bytes](size_t its) { return its >= bytes && its - bytes <= bytes / 4; });
  if (!block) return {};
  idle_bytes_ -= block->bytes;
  return std::move(*block);
}

void ResultMemory::give_back(Block block) {
  std::vector<Block> surplus;  // freed after the lock is released, since that may take a while
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

DeviceMemory LentMemory::take(Device& device, size_t bytes) {
  if (bytes == 0) return nullptr;
  {
    MutexLock lock(mutex_);
    auto block = take_smallest(idle_, false, [bytes](size_t its) { return its >= bytes && its <= 2 * bytes + kSmall; });
    if (block) return lend(std::move(*block));
  }
  return lend({device.allocate(bytes), bytes});
}

DeviceMemory LentMemory::lend(Block block) {
  std::byte* address = block.memory.get();
  return DeviceMemory(address, [home = weak_from_this(), held = std::move(block)](std::byte*) mutable {
    if (const std::shared_ptr<LentMemory> there = home.lock()) there->give_back(std::move(held));
  });
}

void LentMemory::give_back(Block block) {
  MutexLock lock(mutex_);
  const bool is_small = block.bytes <= kSmall;
  idle_.push_back(std::move(block));
  const auto is_alike = [is_small](const Block& other) { return (other.bytes <= kSmall) == is_small; };
  const auto alike = static_cast<size_t>(std::count_if(idle_.begin(), idle_.end(), is_alike));
  if (alike <= (is_small ? kMostSmallIdle : kMostLargeIdle)) return;
  const auto smallest = std::min_element(idle_.begin(), idle_.end(), [&](const Block& a, const Block& b) {
    return is_alike(a) != is_alike(b) ? is_alike(a) : a.bytes < b.bytes;
  });
  surplus_.push_back(std::move(*smallest));
  idle_.erase(smallest);
}

void LentMemory::keep(Device& device, Event until, std::shared_ptr<void> memory) {
  MutexLock lock(mutex_);
  loans_.push_back({&device, std::move(until), std::move(memory)});
}

void LentMemory::sweep() {
  std::vector<Loan> over;  // released after the lock, which give_back() takes
  MutexLock lock(mutex_);
  // The loans have different streams, so any of them may be over.
  const auto first =
      std::stable_partition(loans_.begin(), loans_.end(), [](const Loan& loan) { return !loan.device->is_done(loan.until); });
  std::move(first, loans_.end(), std::back_inserter(over));
  loans_.erase(first, loans_.end());
}

bool LentMemory::keeps_any() const {
  MutexLock lock(mutex_);
  return !loans_.empty();
}

bool LentMemory::has_surplus() const {
  MutexLock lock(mutex_);
  return !surplus_.empty();
}

void LentMemory::free_surplus() {
  std::vector<Block> freed;  // after the lock is released, since that may take a while
  MutexLock lock(mutex_);
  freed.swap(surplus_);
}

void LentMemory::free_idle() {
  free_surplus();
  std::vector<Block> freed;
  MutexLock lock(mutex_);
  freed.swap(idle_);
}

}  // namespace hvd
