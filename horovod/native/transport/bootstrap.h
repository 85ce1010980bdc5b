// What ranks do together before they have a transport: find out where they are, compare what they were told, share memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace hvd {

// One for each rank of this host, mapped by all of them.
struct SharedSegments {
  std::vector<std::byte*> by_local_rank;
  std::shared_ptr<void> keep_alive;  // what has to live as long as they are used; null: they live until the process ends
};

// A job whose ranks have met. All calls but topology() are collective over its ranks.
class Bootstrap {
 public:
  virtual ~Bootstrap() = default;
  virtual const Topology& topology() const = 0;
  virtual void barrier() = 0;
  // Whether all ranks have given the same.
  virtual bool all_give_the_same(uint32_t digest) = 0;
  // Every rank's text, by rank.
  virtual std::vector<std::string> gather(const std::string& text) = 0;
  // Segments of `bytes` each, zeroed or stale. They may be those of an earlier call. Throws StartupError on all ranks alike.
  virtual SharedSegments share(size_t bytes) = 0;
  // What carries messages and transfers between all ranks. Asked for once.
  virtual std::unique_ptr<Transport> make_transport() = 0;
};

}  // namespace hvd
