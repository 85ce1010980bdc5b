#include "collective/movement.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace hvd {
namespace {

std::vector<Movement::Part> in_a_row(std::span<const size_t> bytes) {
  std::vector<Movement::Part> parts;
  size_t offset = 0;
  for (const size_t each : bytes) {
    parts.push_back({offset, each});
    offset += each;
  }
  return parts;
}

// A rank forwards one chunk while its parent receives the next; smaller chunks fill the tree sooner.
constexpr size_t kChunkBytes = size_t{1} << 20;

}  // namespace

size_t Movement::end_of(std::span<const Part> parts) {
  size_t end = 0;
  for (const Part& part : parts) end = std::max(end, part.offset + part.bytes);
  return end;
}

Movement allgather(const void* own, std::span<const size_t> bytes, int rank, std::byte* all) {
  const Movement::Part everything{0, bytes[static_cast<size_t>(rank)]};
  return {static_cast<const std::byte*>(own), all, std::vector(bytes.size(), everything), in_a_row(bytes)};
}

Movement alltoall(const void* source, std::span<const size_t> sent, std::span<const size_t> received, std::byte* destination) {
  return {static_cast<const std::byte*>(source), destination, in_a_row(sent), in_a_row(received)};
}

void move(CollectiveContext& context, const Movement& movement) {
  context.enter(Phase::kCommunicate);
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  for (int r = 0; r < context.group.size(); ++r) {
    const auto [from, bytes] = movement.sent[static_cast<size_t>(r)];
    const auto [to, coming] = movement.received[static_cast<size_t>(r)];
    if (r != context.group.rank()) {
      outgoing.push_back({r, movement.source + from, bytes});
      incoming.push_back({r, movement.destination + to, coming});
      context.wire_bytes += static_cast<int64_t>(bytes);
    } else if (bytes != 0) {
      std::memcpy(movement.destination + to, movement.source + from, bytes);
    }
  }
  context.group.exchange(outgoing, incoming);
}

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

void broadcast(CollectiveContext& context, int root, void* data, size_t bytes) {
  context.enter(Phase::kCommunicate);
  const int size = context.group.size();
  const int place = (context.group.rank() - root + size) % size;  // in a tree with the root at place 0
  auto rank_at = [&](int p) { return (p + root) % size; };
  // A place's parent is the place without its lowest set bit; its children set one lower bit.
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
