#include "collective/alltoall.h"

#include <cstring>

namespace hvd {

std::vector<int64_t> exchange_splits(CollectiveContext& context, std::span<const int64_t> splits) {
  context.enter(Phase::kCommunicate);
  std::vector<int64_t> theirs(splits.begin(), splits.end());
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  for (int r = 0; r < context.group.size(); ++r) {
    if (r == context.group.rank()) continue;
    outgoing.push_back({r, &splits[static_cast<size_t>(r)], sizeof(int64_t)});
    incoming.push_back({r, &theirs[static_cast<size_t>(r)], sizeof(int64_t)});
  }
  context.group.exchange(outgoing, incoming);
  return theirs;
}

void alltoall(CollectiveContext& context, const void* source, std::span<const size_t> sent, std::span<const size_t> received,
              std::byte* output) {
  context.enter(Phase::kCommunicate);
  const auto* from = static_cast<const std::byte*>(source);
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  for (int r = 0; r < context.group.size(); ++r) {
    const auto i = static_cast<size_t>(r);
    if (r != context.group.rank()) {
      outgoing.push_back({r, from, sent[i]});
      incoming.push_back({r, output, received[i]});
      context.wire_bytes += static_cast<int64_t>(sent[i]);
    } else if (sent[i] != 0) {
      std::memcpy(output, from, sent[i]);
    }
    from += sent[i];
    output += received[i];
  }
  context.group.exchange(outgoing, incoming);
}

}  // namespace hvd
