// What travels over a connection once its two ranks know each other: frames, each a header and so many bytes.
#pragma once

#include <cstdint>

namespace hvd {

enum class FrameKind : uint32_t {
  kMessage = 1,  // one of Transport::post
  kBulk = 2,     // a piece of a transfer
  kHeartbeat = 3,
  kAbandon = 4,  // int32 rank that was lost, or kNoRank, and why: the sender cannot go on
  kGoodbye = 5,  // the sender leaves in order, and sends nothing more
};

struct FrameHeader {
  FrameKind kind = FrameKind::kHeartbeat;
  uint32_t checksum = 0;  // CRC-32C of the bytes; of kBulk, where the job wants it, else 0
  uint64_t bytes = 0;
  uint64_t transfer = 0;  // of kBulk: which, in the order in which both have started them, and from where in it
  uint64_t offset = 0;
};
static_assert(sizeof(FrameHeader) == 32);

}  // namespace hvd
