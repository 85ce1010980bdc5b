// How two ranks of a job make sure of each other before anything else is said over a connection.
//
//   who listens   challenge := magic nonce
//   who dials     hello     := rank to lane size nonce proof
//   who listens   answer    := proof
//
// A proof is HMAC-SHA256, by the secret of the job, of all that was said, and of who says it. Nonces are drawn anew, so what
// was heard on another connection proves nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/hashes.h"

namespace hvd {

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

}  // namespace hvd
