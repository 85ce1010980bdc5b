#include "transport/rank_group.h"

#include <algorithm>

namespace hvd {

RankGroup::RankGroup(Transport& transport, std::vector<int> ranks)
    : transport_(transport), ranks_(std::move(ranks)), is_all_(static_cast<int>(ranks_.size()) == transport.size()) {
  auto number_of = [this](int rank) {
    const auto found = std::lower_bound(ranks_.begin(), ranks_.end(), rank);
    return found != ranks_.end() && *found == rank ? static_cast<int>(found - ranks_.begin()) : -1;
  };
  rank_ = number_of(transport.rank());
  for (const std::vector<int>& host : transport.topology().hosts) {
    std::vector<int> members;
    for (const int rank : host) {
      if (const int number = number_of(rank); number >= 0) members.push_back(number);
    }
    if (!members.empty()) hosts_.push_back(std::move(members));
  }
}

template <typename Transfer>
std::vector<Transfer> RankGroup::in_job(std::span<const Transfer> transfers, int Transfer::* rank) const {
  std::vector<Transfer> all(transfers.begin(), transfers.end());
  for (Transfer& one : all) one.*rank = ranks_[static_cast<size_t>(one.*rank)];
  return all;
}

Ticket RankGroup::start(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
                        const std::shared_ptr<void>& keep_alive) const {
  if (is_all_) return transport_.start(outgoing, incoming, keep_alive);
  return transport_.start(in_job(outgoing, &Outgoing::to), in_job(incoming, &Incoming::from), keep_alive);
}

void RankGroup::exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) const {
  if (is_all_) return transport_.exchange(outgoing, incoming);
  transport_.exchange(in_job(outgoing, &Outgoing::to), in_job(incoming, &Incoming::from));
}

}  // namespace hvd
