// What the ranks of a job tell each other about what they have begun, so that a result is given out as soon as all are known to
// have begun the same. The coordinator's response says so too, but between hosts it comes half a round trip later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "schedule/request.h"
#include "transport/topology.h"

namespace hvd {

// Whether ranks that have promised one order tell each other. On one host a response is there at once; and each rank tells
// every other, which is too much where there are many.
bool tells_peers(const Topology& topology);

// Of one rank, which hears every announcement of set 0 from the others, in each one's order.
class PeersBegun {
 public:
  PeersBegun(size_t ranks, size_t own) : ranks_(ranks), own_(own) {}

  // This rank's own. `runs`: of each of its batches, into how many buckets it is carried out.
  void announce(const Announcement& announcement, std::span<const size_t> runs);
  void hear(size_t position, const Announcement& announcement);
  // Of the buckets that this rank has begun since the job began, so many are known to be begun by all. `answered`: the
  // coordinator has said so of as many.
  uint64_t agreed(uint64_t answered);

 private:
  struct Batch {
    uint64_t place;  // of its first request, among all of that rank: two batches of the same ids are not the same
    std::vector<uint32_t> ids;
    uint64_t end = 0;  // this rank's: how many buckets it has begun with this one
  };
  struct Rank {
    uint64_t places = 0;
    std::deque<Batch> batches;  // that have not been compared
  };

  static void add(Rank* rank, const Announcement& announcement);
  void drop_earlier(Rank* rank) const;

  std::vector<Rank> ranks_;
  const size_t own_;
  uint64_t begun_ = 0, agreed_ = 0;  // buckets
};

}  // namespace hvd
