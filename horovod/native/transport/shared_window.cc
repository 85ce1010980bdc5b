#include "transport/shared_window.h"

#include <cstdint>
#include <new>

namespace hvd {
namespace {

constexpr size_t kCounterBytes = Window::kCounters * sizeof(FutexCounter);
constexpr size_t kPage = Window::kAreaAlignment;

}  // namespace

size_t SharedWindow::segment_bytes(size_t area_bytes) { return kCounterBytes + kPage + area_bytes; }

void SharedWindow::prepare(std::byte* segment) {
  auto* counters = reinterpret_cast<FutexCounter*>(segment);
  for (int i = 0; i < kCounters; ++i) new (counters + i) FutexCounter();
}

SharedWindow::SharedWindow(int rank, std::vector<std::byte*> segments, size_t area_bytes, WindowWait wait,
                           std::shared_ptr<void> keep_alive)
    : rank_(rank),
      segments_(std::move(segments)),
      area_bytes_(area_bytes),
      wait_(std::move(wait)),
      keep_alive_(std::move(keep_alive)) {}

std::byte* SharedWindow::area(int rank) {
  std::byte* after_counters = segments_[static_cast<size_t>(rank)] + kCounterBytes;
  return after_counters + (kPage - reinterpret_cast<uintptr_t>(after_counters) % kPage) % kPage;
}

FutexCounter& SharedWindow::counter(int rank, int index) const {
  return reinterpret_cast<FutexCounter*>(segments_[static_cast<size_t>(rank)])[index];
}

void SharedWindow::advance(int index) { hvd::advance(counter(rank_, index)); }

void SharedWindow::await(int rank, int index, uint32_t target) {
  FutexCounter& awaited = counter(rank, index);
  for (;;) {
    const uint32_t now = awaited.count.load(std::memory_order_acquire);
    if (reached(now, target)) return;
    wait_.meanwhile();
    wait_for_change(awaited, now, wait_.longest_sleep, wait_.patience);
  }
}

uint64_t SharedWindow::counted() const {
  uint64_t sum = 0;
  for (int rank = 0; rank < static_cast<int>(segments_.size()); ++rank) {
    for (int i = 0; i < kCounters; ++i) sum += counter(rank, i).count.load(std::memory_order_relaxed);
  }
  return sum;
}

}  // namespace hvd
