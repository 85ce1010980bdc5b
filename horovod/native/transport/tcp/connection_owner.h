// What connections of one job have in common, and whom they tell of what has come and gone.
#pragma once

#include <cstddef>
#include <vector>

#include "transport/tcp/frame.h"
#include "transport/tcp/handshake.h"
#include "transport/transfer.h"

namespace hvd {

// What all connections of a job have in common.
struct ConnectionTerms {
  Secret secret{};
  bool with_checksums = false;
};

class Connection;

class ConnectionOwner {
 public:
  virtual ~ConnectionOwner() = default;
  // Where the bytes of a kBulk frame go; null: the transfer has not been started, so the connection stands still until
  // stand_up(). Throws InternalError for a frame that cannot be.
  virtual std::byte* place_for(const Connection& from, const FrameHeader& header) = 0;
  virtual void on_bulk(const Connection& from, const FrameHeader& header) = 0;
  virtual void on_frame(Connection& from, FrameKind kind, std::vector<std::byte> payload) = 0;
  virtual void on_sent(Ticket ticket) = 0;  // one of its frames has left
};

}  // namespace hvd
