#include "collective/reducescatter.h"

#include <algorithm>
#include <vector>

namespace hvd {
namespace {

constexpr int64_t kChunkBytes = int64_t{4} << 20;  // of one slice

void reduce_chunk(CollectiveContext& context, std::span<const std::unique_ptr<Bucket>> slices,
                  const std::vector<Range>& ranges) {
  const int rank = context.group.rank(), size = context.group.size();
  const auto own = static_cast<size_t>(rank);
  auto bytes_of = [&](size_t r) { return static_cast<size_t>(slices[r]->message_bytes(ranges[r])); };
  size_t send_bytes = 0;
  for (size_t r = 0; r < slices.size(); ++r) send_bytes += bytes_of(r);
  const size_t own_bytes = bytes_of(own);
  std::byte* contribution = context.send.at_least(send_bytes);
  std::byte* received = context.receive.at_least(own_bytes * static_cast<size_t>(size));

  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  std::vector<const std::byte*> messages(slices.size(), nullptr);  // the own slice is read in place, unless encoded
  context.enter(Phase::kPack);
  for (int r = 0; r < size; ++r) {
    const auto i = static_cast<size_t>(r);
    if (r == rank && slices[own]->reduction().codec == nullptr) continue;
    slices[i]->pack(ranges[i], contribution);
    if (r == rank) {
      messages[i] = contribution;
    } else {
      std::byte* message = received + own_bytes * i;
      messages[i] = message;
      outgoing.push_back({r, contribution, bytes_of(i)});
      incoming.push_back({r, message, own_bytes});
      context.wire_bytes += static_cast<int64_t>(bytes_of(i));
    }
    contribution += bytes_of(i);
  }
  context.enter(Phase::kCommunicate);
  context.group.exchange(outgoing, incoming);
  context.enter(Phase::kReduce);
  slices[own]->reduce(ranges[own], messages, true, nullptr);
}

}  // namespace

void reducescatter(CollectiveContext& context, std::span<const std::unique_ptr<Bucket>> slices) {
  if (slices.size() == 1) return slices.front()->reduce_alone();
  int64_t largest = 0;
  for (const auto& slice : slices) largest = std::max(largest, slice->count());
  const int64_t elements = kChunkBytes / static_cast<int64_t>(size_of(slices.front()->reduction().dtype));
  const int chunks = static_cast<int>((largest + elements - 1) / elements);
  for (int chunk = 0; chunk < chunks; ++chunk) {
    std::vector<Range> ranges;
    for (const auto& slice : slices) ranges.push_back(slice->part({0, slice->count()}, chunk, chunks));
    reduce_chunk(context, slices, ranges);
  }
}

}  // namespace hvd
