#include "schedule/peers_begun.h"

#include <algorithm>

namespace hvd {
namespace {

constexpr int kMostRanks = 16;

}  // namespace

bool tells_peers(const Topology& topology) { return topology.hosts.size() > 1 && topology.size <= kMostRanks; }

void PeersBegun::add(Rank* rank, const Announcement& announcement) {
  if (announcement.answers != 0) return;  // requests that have had their places
  size_t from = 0;
  for (const size_t to : announcement.batches) {
    const auto ids = std::span(announcement.ids).subspan(from, to - from);
    rank->batches.push_back({rank->places + from, {ids.begin(), ids.end()}});
    from = to;
  }
  rank->places += announcement.ids.size() + announcement.requests.size();
}

void PeersBegun::announce(const Announcement& announcement, std::span<const size_t> runs) {
  Rank& own = ranks_[own_];
  const size_t before = own.batches.size();
  add(&own, announcement);
  for (size_t i = 0; i < runs.size(); ++i) own.batches[before + i].end = begun_ += runs[i];
}

void PeersBegun::hear(size_t position, const Announcement& announcement) {
  add(&ranks_[position], announcement);
  drop_earlier(&ranks_[position]);
}

// What this rank has not begun, or what the coordinator has answered, is not waited for.
void PeersBegun::drop_earlier(Rank* rank) const {
  const Rank& own = ranks_[own_];
  const uint64_t place = own.batches.empty() ? own.places : own.batches.front().place;
  while (!rank->batches.empty() && rank->batches.front().place < place) rank->batches.pop_front();
}

uint64_t PeersBegun::agreed(uint64_t answered) {
  std::deque<Batch>& own = ranks_[own_].batches;
  for (; !own.empty(); own.pop_front()) {
    const Batch& first = own.front();
    if (first.end <= answered) continue;
    for (size_t position = 0; position < ranks_.size(); ++position) {
      if (position == own_) continue;
      drop_earlier(&ranks_[position]);
      const std::deque<Batch>& theirs = ranks_[position].batches;
      // Where they differ, it is left to the coordinator, which says so to all.
      if (theirs.empty() || theirs.front().place != first.place || theirs.front().ids != first.ids) return agreed_;
    }
    agreed_ = first.end;
  }
  return agreed_;
}

}  // namespace hvd
