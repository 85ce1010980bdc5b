#include "transport/local.h"

#include <cstdlib>
#include <new>

#include "transport/shared_memory.h"

namespace hvd {

std::vector<std::unique_ptr<Transport>> make_local_transports(int size, bool with_window) {
  const size_t bytes = SharedMemoryTransport::segment_bytes(size);
  void* memory = std::aligned_alloc(4096, bytes * static_cast<size_t>(size));
  if (memory == nullptr) throw std::bad_alloc();
  const std::shared_ptr<void> region(memory, std::free);
  std::vector<std::byte*> segments;
  for (int rank = 0; rank < size; ++rank) {
    segments.push_back(static_cast<std::byte*>(memory) + bytes * static_cast<size_t>(rank));
    SharedMemoryTransport::prepare(segments.back(), size);
  }
  std::vector<std::unique_ptr<Transport>> transports;
  for (int rank = 0; rank < size; ++rank) {
    Topology topology;
    topology.rank = topology.local_rank = rank;
    topology.size = topology.local_size = size;
    transports.push_back(
        std::make_unique<SharedMemoryTransport>("local", topology, segments, region, with_window));
  }
  return transports;
}

}  // namespace hvd
