// The window of ranks that see the same memory: processes of one host, or threads of one process.
//
// Each rank owns one segment, and writes only there:
//
//   segment := counter[kCounters] padding area
//
// Wherever processes map a segment, it begins at the same place of a page: so the areas are the same bytes for all.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "base/futex.h"
#include "transport/window.h"

namespace hvd {

// How await() passes the time.
struct WindowWait {
  Patience patience;
  std::chrono::microseconds longest_sleep;
  std::function<void()> meanwhile;  // called before each sleep; may throw
};

class SharedWindow final : public Window {
 public:
  static size_t segment_bytes(size_t area_bytes);
  // Makes a segment ready for use. Every rank prepares its own, and all must have done so before any is used.
  static void prepare(std::byte* segment);

  // `segments`, by rank, begin at multiples of 64 and outlive the window; `keep_alive` may own them.
  SharedWindow(int rank, std::vector<std::byte*> segments, size_t area_bytes, WindowWait wait,
               std::shared_ptr<void> keep_alive);

  std::byte* area(int rank) override;
  size_t area_bytes() const override { return area_bytes_; }
  void advance(int index) override;
  void await(int rank, int index, uint32_t target) override;
  uint64_t counted() const override;

 private:
  FutexCounter& counter(int rank, int index) const;

  // Constant after construction.
  const int rank_;
  const std::vector<std::byte*> segments_;
  const size_t area_bytes_;
  const WindowWait wait_;
  const std::shared_ptr<void> keep_alive_;
};

}  // namespace hvd
