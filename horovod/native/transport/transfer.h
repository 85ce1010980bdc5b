// What a transport moves, messages and transfers of bulk data, and what is said where it cannot any more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hvd {

constexpr int kNoRank = -1;

struct Message {
  int from = 0;
  std::vector<std::byte> bytes;
};

// One transfer of bulk data. Zero bytes transfer nothing.
struct Outgoing {
  int to;
  const void* data;
  size_t bytes;
};
struct Incoming {
  int from;
  void* data;
  size_t bytes;
};

using Ticket = uint64_t;  // names transfers that were started together
// What leaves at once on every transport. For more, MPI over TCP has the two sides agree first, whenever each next looks.
constexpr size_t kPromptBytes = size_t{48} << 10;

// What a rank says when another has told it that it cannot go on: on `rank`, of Transport::abandon(silent) on rank `by`.
inline std::string abandonment(int rank, int by, int silent) {
  const std::string here = "rank " + std::to_string(rank), there = "rank " + std::to_string(by);
  if (silent == kNoRank) return here + " lost " + there + ", which could not go on; its own error says why";
  const std::string limit = " for as long as it waits";
  if (silent == rank) return here + " was given up: " + there + " heard nothing of it" + limit;
  const std::string lost = "rank " + std::to_string(silent);
  return here + " lost " + lost + ": " + there + " has heard nothing of " + lost + limit;
}

}  // namespace hvd
