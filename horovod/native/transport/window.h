// Memory that ranks share, and how they tell each other what they have written there.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hvd {

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

}  // namespace hvd
