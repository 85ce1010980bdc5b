// What a transport moves: messages, and transfers of bulk data.
#pragma once

#include <cstddef>
#include <cstdint>
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

}  // namespace hvd
