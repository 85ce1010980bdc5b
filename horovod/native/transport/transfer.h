// A transport's messages and transfers of bulk data, and the errors if it can move no more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"

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
inline Failure abandonment(int rank, int by, int silent) {
  if (silent == kNoRank) return {Said::peer_gave_up, {.ranks = {by}, .others = {{"rank", rank}}}};
  if (silent == rank) return {Said::given_up, {.ranks = {rank}, .others = {{"by", by}}}};
  return {Said::other_heard_nothing, {.ranks = {silent}, .others = {{"rank", rank}, {"by", by}}}};
}

}  // namespace hvd
