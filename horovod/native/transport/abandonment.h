// What a rank says when another has told it that it cannot go on.
#pragma once

#include <string>

#include "transport/transfer.h"

namespace hvd {

// On `rank`, of Transport::abandon(silent) on rank `by`.
inline std::string abandonment(int rank, int by, int silent) {
  const std::string here = "rank " + std::to_string(rank), there = "rank " + std::to_string(by);
  if (silent == kNoRank) return here + " lost " + there + ", which could not go on; its own error says why";
  const std::string limit = " for as long as it waits";
  if (silent == rank) return here + " was given up: " + there + " heard nothing of it" + limit;
  const std::string lost = "rank " + std::to_string(silent);
  return here + " lost " + lost + ": " + there + " has heard nothing of " + lost + limit;
}

}  // namespace hvd
