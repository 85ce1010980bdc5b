#include "collective/broadcast.h"

#include <algorithm>
#include <vector>

namespace hvd {
namespace {

// A rank forwards a chunk while its parent receives the next; smaller chunks fill the tree sooner.
constexpr size_t kChunkBytes = size_t{1} << 20;

}  // namespace

void broadcast(CollectiveContext& context, int root, void* data, size_t bytes) {
  context.enter(Phase::kCommunicate);
  const int size = context.group.size();
  const int place = (context.group.rank() - root + size) % size;  // in a tree whose root is place 0
  auto rank_at = [&](int p) { return (p + root) % size; };
  // A place's parent is the place without its lowest set bit; its children set one bit below that.
  int lowest = 1;
  while (lowest < size && (place & lowest) == 0) lowest *= 2;
  std::vector<int> children;
  for (int bit = lowest / 2; bit >= 1; bit /= 2) {
    if (place + bit < size) children.push_back(rank_at(place + bit));
  }
  for (size_t at = 0; at < bytes; at += kChunkBytes) {
    const size_t count = std::min(kChunkBytes, bytes - at);
    std::byte* chunk = static_cast<std::byte*>(data) + at;
    if (place != 0) {
      const Incoming from_parent[] = {{rank_at(place - lowest), chunk, count}};
      context.group.exchange({}, from_parent);
    }
    std::vector<Outgoing> to_children;
    for (int child : children) {
      to_children.push_back({child, chunk, count});
      context.wire_bytes += static_cast<int64_t>(count);
    }
    context.group.exchange(to_children, {});
  }
}

}  // namespace hvd
