// The protocol of two ranks over TCP: first the handshake, then frames.
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

// How two ranks of a job make sure of each other before anything else is said over a connection.
//
//   who listens   challenge := magic nonce
//   who dials     hello     := rank to lane size nonce proof
//   who listens   answer    := proof
//
// A proof is HMAC-SHA256, by the secret of the job, of all that was said, and of who says it. Nonces are drawn anew, so what
// was heard on another connection proves nothing.

// Which connection it is to be. Lane 0 is for messages, the others are for bulk data.
struct Introduction {
  uint32_t rank = 0;  // of who dials
  uint32_t to = 0;    // the rank that it means
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
// The nonce in it; none if nobody of ours has said this.
std::optional<Nonce> read_challenge(std::span<const std::byte, std::tuple_size_v<Challenge>> challenge);

Hello hello_to(const Nonce& challenge, const Nonce& own, const Introduction& who, const Secret& secret);
// Who introduces itself so; none unless it knows the secret.
std::optional<Introduction> read_hello(const Hello& hello, const Nonce& challenge, const Secret& secret);

Answer answer_to(const Hello& hello, const Nonce& challenge, const Secret& secret);

// ---- frames ---------------------------------------------------------------------------------------------------------

// What travels over a connection once its two ranks know each other: frames, each a header and so many bytes.
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

// ---- whom connections tell ------------------------------------------------------------------------------------------

// What all connections of a job have in common.
struct ConnectionTerms {
  Secret secret{};
  bool with_checksums = false;
};

class Connection;

// Who is told of what has come and gone.
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
