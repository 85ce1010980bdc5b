#include "transport/rank_group.h"

#include <algorithm>

namespace hvd {

RankGroup::RankGroup(Transport& transport, std::vector<int> ranks)
    : transport_(transport), ranks_(std::move(ranks)), is_all_(static_cast<int>(ranks_.size()) == transport.size()) {
  rank_ = static_cast<int>(std::find(ranks_.begin(), ranks_.end(), transport.rank()) - ranks_.begin());
}

void RankGroup::exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) const {
  if (is_all_) return transport_.exchange(outgoing, incoming);
  std::vector<Outgoing> out(outgoing.begin(), outgoing.end());
  std::vector<Incoming> in(incoming.begin(), incoming.end());
  for (Outgoing& one : out) one.to = ranks_[static_cast<size_t>(one.to)];
  for (Incoming& one : in) one.from = ranks_[static_cast<size_t>(one.from)];
  transport_.exchange(out, in);
}

}  // namespace hvd
