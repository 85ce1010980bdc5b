#include "collective/allgather.h"

#include <cstring>
#include <vector>

namespace hvd {

void allgather(CollectiveContext& context, const void* source, std::span<const size_t> bytes, std::byte* output) {
  context.enter(Phase::kCommunicate);
  const auto rank = static_cast<size_t>(context.group.rank());
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  for (size_t r = 0; r < bytes.size(); ++r) {
    if (r == rank) {
      if (bytes[r] != 0) std::memcpy(output, source, bytes[r]);
    } else {
      outgoing.push_back({static_cast<int>(r), source, bytes[rank]});
      incoming.push_back({static_cast<int>(r), output, bytes[r]});
      context.wire_bytes += static_cast<int64_t>(bytes[rank]);
    }
    output += bytes[r];
  }
  context.group.exchange(outgoing, incoming);
}

}  // namespace hvd
