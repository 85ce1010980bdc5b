#include "transport/window.h"

#include <cstdint>
#include <new>

#include "transport/transport.h"

namespace hvd {
namespace {

constexpr size_t kCounterBytes = Window::kCounters * sizeof(FutexCounter);
constexpr size_t kPage = Window::kAreaAlignment;

constexpr size_t kAreaBytes = size_t{8} << 20;

// Transfers of this rank to other hosts must not stall for longer.
constexpr std::chrono::microseconds kLongestSleep{50};

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

size_t host_window_bytes() { return SharedWindow::segment_bytes(kAreaBytes); }

void add_host_window(Transport& transport, std::vector<std::byte*> segments, std::shared_ptr<void> keep_alive) {
  const Patience spin_then_sleep{40, std::chrono::microseconds(0)};
  WindowWait wait{spin_then_sleep, kLongestSleep, [&transport] { transport.progress(); }};
  const int rank = transport.topology().local_rank;
  transport.add_host_window(
      std::make_unique<SharedWindow>(rank, std::move(segments), kAreaBytes, std::move(wait), std::move(keep_alive)));
}

}  // namespace hvd
