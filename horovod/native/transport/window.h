// Memory that ranks share, and counters that announce new data in it.
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

// Shared memory of several ranks: a data area for each rank, and counters that each rank advances and the others wait for.
// Counters start at 0, only grow (modulo 2^32) and are never reset: collectives number their steps consecutively.
class Window {
 public:
  static constexpr int kCounters = 4;
  static constexpr size_t kAreaAlignment = 4096;

  virtual ~Window() = default;
  // Address and length are multiples of kAreaAlignment, because GPUs pin whole pages. All collectives divide areas alike: a
  // rank may begin the next collective while others still read results of the last in their slots.
  virtual std::byte* area(int rank) = 0;
  virtual size_t area_bytes() const = 0;
  // Adds 1 to this rank's counter. A rank that awaits the new count sees all earlier writes to the areas.
  virtual void advance(int index) = 0;
  // Sleeps until `rank`'s counter reaches `target`, and meanwhile advances transfers. Throws InternalError if a rank is lost.
  virtual void await(int rank, int index, uint32_t target) = 0;

  // Changes whenever a counter of any rank advances.
  virtual uint64_t counted() const = 0;

  // Steps of all collectives through this window, the same on every rank. Several process sets may use the window.
  uint32_t steps = 0;
};

// How await() waits.
struct WindowWait {
  Patience patience;
  std::chrono::microseconds longest_sleep;
  std::function<void()> meanwhile;  // called before each sleep; may throw
};

// The window of processes of one host, or of threads of one process. Every rank owns one segment, and prepares it before any is
// used. `segments`, by rank, are aligned to 64 bytes and must outlive the window; `keep_alive` may own them.
size_t window_segment_bytes(size_t area_bytes);
void prepare_window(std::byte* segment);
std::unique_ptr<Window> make_shared_window(int rank, std::vector<std::byte*> segments, size_t area_bytes, WindowWait wait,
                                           std::shared_ptr<void> keep_alive);

// ---- windows of each host, for jobs with several hosts -----------------------------------------------------------------

// Bytes of one rank's segment. Segments must be aligned to 64 bytes.
size_t host_window_bytes();

// Adds the window in these segments (by local rank, prepared by their ranks) to a transport. Waits in the window advance the
// transport's transfers.
void add_host_window(Transport& transport, std::vector<std::byte*> segments, std::shared_ptr<void> keep_alive);

}  // namespace hvd
