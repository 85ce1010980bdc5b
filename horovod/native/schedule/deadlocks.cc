#include "schedule/deadlocks.h"

#include <set>
#include <utility>

namespace hvd {
namespace {

using Edges = std::map<int, std::vector<int>>;

// Whether a rank waits for itself, through other ranks.
bool is_in_circle(int rank, const Edges& waits_for) {
  std::set<int> seen;
  std::vector<int> next{rank};
  while (!next.empty()) {
    const auto edges = waits_for.find(next.back());
    next.pop_back();
    if (edges == waits_for.end()) continue;
    for (const int other : edges->second) {
      if (other == rank) return true;
      if (seen.insert(other).second) next.push_back(other);
    }
  }
  return false;
}

}  // namespace

void Deadlocks::block(BlockedCaller caller) {
  is_news_ = true;
  const int rank = caller.rank;
  callers_.insert_or_assign(rank, std::move(caller));
}

void Deadlocks::unblock(int rank) { callers_.erase(rank); }

std::vector<BlockedCaller> Deadlocks::take_released(const Missing& missing) {
  std::vector<BlockedCaller> released;
  if (!std::exchange(is_news_, false)) return released;  // only a caller that begins to wait closes a cycle
  Edges waits_for;
  for (const auto& [rank, caller] : callers_) waits_for[rank] = missing(caller);
  for (const auto& [rank, caller] : callers_) {
    if (caller.may_yield && is_in_circle(rank, waits_for)) released.push_back(caller);
  }
  for (const BlockedCaller& caller : released) callers_.erase(caller.rank);
  return released;
}

}  // namespace hvd
