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

// Each rank writes only to its own segment:
//
//   segment := counter[kCounters] padding area
//
// Processes map a segment at the same offset in a page, so the padding is the same for all.
class SharedWindow final : public Window {
 public:
  SharedWindow(int rank, std::vector<std::byte*> segments, size_t area_bytes, WindowWait wait, std::shared_ptr<void> keep_alive)
      : rank_(rank),
        segments_(std::move(segments)),
        area_bytes_(area_bytes),
        wait_(std::move(wait)),
        keep_alive_(std::move(keep_alive)) {}

  std::byte* area(int rank) override {
    std::byte* after_counters = segments_[static_cast<size_t>(rank)] + kCounterBytes;
    return after_counters + (kPage - reinterpret_cast<uintptr_t>(after_counters) % kPage) % kPage;
  }

  size_t area_bytes() const override { return area_bytes_; }
  void advance(int index) override { hvd::advance(counter(rank_, index)); }

  void await(int rank, int index, uint32_t target) override {
    FutexCounter& awaited = counter(rank, index);
    for (;;) {
      const uint32_t now = awaited.count.load(std::memory_order_acquire);
      if (reached(now, target)) return;
      wait_.meanwhile();
      wait_for_change(awaited, now, wait_.longest_sleep, wait_.patience);
    }
  }

  uint64_t counted() const override {
    uint64_t sum = 0;
    for (int rank = 0; rank < static_cast<int>(segments_.size()); ++rank) {
      for (int i = 0; i < kCounters; ++i) sum += counter(rank, i).count.load(std::memory_order_relaxed);
    }
    return sum;
  }

 private:
  FutexCounter& counter(int rank, int index) const {
    return reinterpret_cast<FutexCounter*>(segments_[static_cast<size_t>(rank)])[index];
  }

  // Constant after construction.
  const int rank_;
  const std::vector<std::byte*> segments_;
  const size_t area_bytes_;
  const WindowWait wait_;
  const std::shared_ptr<void> keep_alive_;
};

}  // namespace

size_t window_segment_bytes(size_t area_bytes) { return kCounterBytes + kPage + area_bytes; }

void prepare_window(std::byte* segment) {
  auto* counters = reinterpret_cast<FutexCounter*>(segment);
  for (int i = 0; i < Window::kCounters; ++i) new (counters + i) FutexCounter();
}

std::unique_ptr<Window> make_shared_window(int rank, std::vector<std::byte*> segments, size_t area_bytes, WindowWait wait,
                                           std::shared_ptr<void> keep_alive) {
  return std::make_unique<SharedWindow>(rank, std::move(segments), area_bytes, std::move(wait), std::move(keep_alive));
}

size_t host_window_bytes() { return window_segment_bytes(kAreaBytes); }

void add_host_window(Transport& transport, std::vector<std::byte*> segments, std::shared_ptr<void> keep_alive) {
  const Patience spin_then_sleep{40, std::chrono::microseconds(0)};
  WindowWait wait{spin_then_sleep, kLongestSleep, [&transport] { transport.progress(); }};
  const int rank = transport.topology().local_rank;
  transport.add_host_window(make_shared_window(rank, std::move(segments), kAreaBytes, std::move(wait), std::move(keep_alive)));
}

}  // namespace hvd
