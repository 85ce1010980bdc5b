// Allreduce by messages, for ranks that share no memory: contributions to the owner of each part (or to everybody), then
// results to everybody. The bucket goes in chunks, so that buffers stay small whatever its size.
#include <algorithm>
#include <vector>

#include "collective/allreduce.h"

namespace hvd {
namespace {

// Of the tensors: enough to keep a network busy, and for each rank enough that its messages are worth sending.
constexpr int64_t kChunkBytes = int64_t{16} << 20;
constexpr int64_t kPartBytes = int64_t{256} << 10;

// Where the message of each part begins in a buffer, and after them all, its length.
std::vector<size_t> offsets_of(const Bucket& bucket, Range chunk, int parts) {
  std::vector<size_t> offsets = {0};
  for (int p = 0; p < parts; ++p) {
    offsets.push_back(offsets.back() + static_cast<size_t>(bucket.message_bytes(bucket.part(chunk, p, parts))));
  }
  return offsets;
}

void gather_chunk(CollectiveContext& context, Bucket& bucket, Range chunk) {
  const int rank = context.group.rank(), size = context.group.size();
  const auto bytes = static_cast<size_t>(bucket.message_bytes(chunk));
  std::byte* mine = context.send.at_least(bytes);
  std::byte* theirs = context.receive.at_least(bytes * static_cast<size_t>(size));
  context.enter(Phase::kPack);
  bucket.pack(chunk, mine);
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  std::vector<const std::byte*> messages(static_cast<size_t>(size), mine);
  for (int r = 0; r < size; ++r) {
    if (r == rank) continue;
    std::byte* message = theirs + bytes * static_cast<size_t>(r);
    outgoing.push_back({r, mine, bytes});
    incoming.push_back({r, message, bytes});
    messages[static_cast<size_t>(r)] = message;
  }
  context.enter(Phase::kCommunicate);
  context.group.exchange(outgoing, incoming);
  context.wire_bytes += static_cast<int64_t>(bytes) * (size - 1);
  context.enter(Phase::kReduce);
  bucket.reduce(chunk, messages, true, nullptr);
}

void scatter_chunk(CollectiveContext& context, Bucket& bucket, Range chunk) {
  const int rank = context.group.rank(), size = context.group.size();
  const std::vector<size_t> offsets = offsets_of(bucket, chunk, size);
  auto part_bytes = [&](int r) { return offsets[static_cast<size_t>(r) + 1] - offsets[static_cast<size_t>(r)]; };
  const Range own = bucket.part(chunk, rank, size);
  const size_t own_bytes = part_bytes(rank);

  std::byte* contributions = context.send.at_least(offsets.back());
  std::byte* received = context.receive.at_least(own_bytes * static_cast<size_t>(size));
  context.enter(Phase::kPack);
  for (int r = 0; r < size; ++r) {
    bucket.pack(bucket.part(chunk, r, size), contributions + offsets[static_cast<size_t>(r)]);
  }
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  std::vector<const std::byte*> messages;
  for (int r = 0; r < size; ++r) {
    std::byte* message = received + own_bytes * static_cast<size_t>(r);
    messages.push_back(r == rank ? contributions + offsets[static_cast<size_t>(r)] : message);
    if (r == rank) continue;
    outgoing.push_back({r, contributions + offsets[static_cast<size_t>(r)], part_bytes(r)});
    incoming.push_back({r, message, own_bytes});
  }
  context.enter(Phase::kCommunicate);
  context.group.exchange(outgoing, incoming);

  context.enter(Phase::kReduce);
  std::byte* results = context.result.at_least(offsets.back());
  std::byte* own_result = results + offsets[static_cast<size_t>(rank)];
  bucket.reduce(own, messages, false, own_result);
  outgoing.clear();
  incoming.clear();
  for (int r = 0; r < size; ++r) {
    if (r == rank) continue;
    outgoing.push_back({r, own_result, own_bytes});
    incoming.push_back({r, results + offsets[static_cast<size_t>(r)], part_bytes(r)});
  }
  context.enter(Phase::kCommunicate);
  context.group.exchange(outgoing, incoming);
  context.enter(Phase::kUnpack);
  for (int r = 0; r < size; ++r) {
    bucket.unpack(bucket.part(chunk, r, size), results + offsets[static_cast<size_t>(r)]);
    if (r != rank) context.wire_bytes += static_cast<int64_t>(part_bytes(r) + own_bytes);
  }
}

}  // namespace

void allreduce_by_exchange(CollectiveContext& context, Bucket& bucket, bool gather) {
  const int64_t bytes = std::max(kChunkBytes, kPartBytes * context.group.size());
  const int64_t elements = bytes / static_cast<int64_t>(size_of(bucket.reduction().dtype));
  for (int64_t at = 0; at < bucket.count();) {
    const int64_t end = bucket.cut(at + elements);
    if (gather) {
      gather_chunk(context, bucket, {at, end});
    } else {
      scatter_chunk(context, bucket, {at, end});
    }
    at = end;
  }
}

}  // namespace hvd
