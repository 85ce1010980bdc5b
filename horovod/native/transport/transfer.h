// A transport's messages and transfers, and the errors of a transport that has failed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"

namespace hvd {

constexpr int kNoRank = -1;

struct Message {
  int from = 0;
  std::vector<std::byte> bytes;
};

// Removes the first message. Nothing if there is none.
inline std::optional<Message> take_first(std::deque<Message>& messages) {
  if (messages.empty()) return std::nullopt;
  Message first = std::move(messages.front());
  messages.pop_front();
  return first;
}

// A transfer of bulk data. Zero bytes are not transferred.
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

using Ticket = uint64_t;  // identifies transfers that were started together
// The size up to which every transport sends at once. For more, MPI over TCP first needs an answer of the receiver's engine.
constexpr size_t kPromptBytes = size_t{48} << 10;

// The error of `rank` after rank `by` has called Transport::abandon(silent).
inline Failure abandonment(int rank, int by, int silent) {
  if (silent == kNoRank) return {Said::peer_gave_up, {.ranks = {by}, .others = {{"rank", rank}}}};
  if (silent == rank) return {Said::given_up, {.ranks = {rank}, .others = {{"by", by}}}};
  return {Said::other_heard_nothing, {.ranks = {silent}, .others = {{"rank", rank}, {"by", by}}}};
}

}  // namespace hvd
