// The protocol between two ranks over TCP: the handshake, then frames.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/hashes.h"
#include "transport/transfer.h"

namespace hvd {

// ---- the handshake --------------------------------------------------------------------------------------------------

// The handshake proves to both ranks that the other belongs to the job, before anything else is sent:
//
//   listener   challenge := magic nonce
//   dialler    hello     := rank to lane size nonce proof
//   listener   answer    := proof
//
// A proof is the HMAC-SHA256, with the job's secret, of all bytes so far and of the sender's role. Nonces are random for each
// connection, so a recorded proof is useless on another.

// The purpose of a connection. Lane 0 is for messages, the others for bulk data.
struct Introduction {
  uint32_t rank = 0;  // of the dialler
  uint32_t to = 0;    // the rank that it wants to reach
  uint32_t lane = 0;
  uint32_t size = 0;  // ranks of the job
};

using Secret = Digest;
using Nonce = std::array<std::byte, 32>;
using Challenge = std::array<std::byte, 8 + 32>;
using Hello = std::array<std::byte, 16 + 32 + 32>;
using Answer = Digest;

Nonce draw_nonce();
Challenge challenge_with(const Nonce& nonce);
// Returns the nonce; none if no rank of this protocol has sent it.
std::optional<Nonce> read_challenge(std::span<const std::byte, std::tuple_size_v<Challenge>> challenge);

Hello hello_to(const Nonce& challenge, const Nonce& own, const Introduction& who, const Secret& secret);
// Returns the dialler's introduction; none if its proof is wrong.
std::optional<Introduction> read_hello(const Hello& hello, const Nonce& challenge, const Secret& secret);

Answer answer_to(const Hello& hello, const Nonce& challenge, const Secret& secret);

// ---- frames ---------------------------------------------------------------------------------------------------------

// After the handshake a connection carries frames, each a header and its bytes.
enum class FrameKind : uint32_t {
  kMessage = 1,  // a message of Transport::post
  kBulk = 2,     // a piece of a transfer
  kHeartbeat = 3,
  kAbandon = 4,  // int32 lost rank or kNoRank, and the reason: the sender cannot continue
  kGoodbye = 5,  // the sender leaves in order, and sends nothing more
};

struct FrameHeader {
  FrameKind kind = FrameKind::kHeartbeat;
  uint32_t checksum = 0;  // CRC-32C of the bytes; for kBulk 0 unless checksums are on
  uint64_t bytes = 0;
  uint64_t transfer = 0;  // of kBulk: the transfer's number, in the order of starts, and offset in it
  uint64_t offset = 0;
};
static_assert(sizeof(FrameHeader) == 32);

// ---- the owner of connections ---------------------------------------------------------------------------------------

// Terms that all connections of a job share.
struct ConnectionTerms {
  Secret secret{};
  bool with_checksums = false;
};

class Connection;

// Receives the frames of its connections.
class ConnectionOwner {
 public:
  virtual ~ConnectionOwner() = default;
  // Returns the memory for a kBulk frame; null if the transfer has not been started, and then the connection reads nothing
  // until stand_up(). Throws InternalError for an invalid frame.
  virtual std::byte* place_for(const Connection& from, const FrameHeader& header) = 0;
  virtual void on_bulk(const Connection& from, const FrameHeader& header) = 0;
  virtual void on_frame(Connection& from, FrameKind kind, std::vector<std::byte> payload) = 0;
  virtual void on_sent(Ticket ticket) = 0;  // one of the ticket's frames has left
};

}  // namespace hvd
