// Memory that ranks share, and how they tell each other what they have written there.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/futex.h"

namespace hvd {

class Transport;

// Memory that several ranks see: a data area for each of them, and counters that each advances and the others wait on.
// Counters start at 0, only grow (modulo 2^32) and are never reset: collectives number their steps through.
class Window {
 public:
  static constexpr int kCounters = 4;
  static constexpr size_t kAreaAlignment = 4096;

  virtual ~Window() = default;
  // Both are multiples of kAreaAlignment: whole pages, as GPUs have them pinned. All collectives cut areas alike: a rank
  // may begin the next one while others still read what the last one has left in its slots.
  virtual std::byte* area(int rank) = 0;
  virtual size_t area_bytes() const = 0;
  // Adds 1 to this rank's counter. What was written to the areas before is visible to whoever awaited the new count.
  virtual void advance(int index) = 0;
  // Sleeps until `rank`'s counter has reached `target`; transfers go on meanwhile. Throws InternalError when a rank is lost.
  virtual void await(int rank, int index, uint32_t target) = 0;

  // The counters of all ranks together: another number than before, if any has been advanced.
  virtual uint64_t counted() const = 0;

  // Steps that collectives have done through it, the same on every rank. Here, as any process set of its ranks may use it.
  uint32_t steps = 0;
};

// How await() passes the time.
struct WindowWait {
  Patience patience;
  std::chrono::microseconds longest_sleep;
  std::function<void()> meanwhile;  // called before each sleep; may throw
};

// The window of ranks that see the same memory: processes of one host, or threads of one process.
//
// Each rank owns one segment, and writes only there:
//
//   segment := counter[kCounters] padding area
//
// Wherever processes map a segment, it begins at the same place of a page: so the areas are the same bytes for all.
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

// ---- among the ranks of each host, where a job has several hosts and some have several ranks ------------------------

// Of one rank's segment. Segments begin at multiples of 64.
size_t host_window_bytes();

// Gives a transport the window that lies in these segments, by local rank, which all its ranks have prepared. Whoever waits
// in it keeps the transport's transfers going.
void add_host_window(Transport& transport, std::vector<std::byte*> segments, std::shared_ptr<void> keep_alive);

}  // namespace hvd
