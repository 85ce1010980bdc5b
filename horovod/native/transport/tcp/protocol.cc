#include "transport/tcp/protocol.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/error.h"

namespace hvd {
namespace {

constexpr std::string_view kMagic = "hvd-tcp1";
// The sender's role is part of a proof, so that a proof cannot be sent back to its sender.
constexpr std::string_view kDialler = "who dials", kListener = "who listens";

constexpr size_t kProofAt = sizeof(Introduction) + sizeof(Nonce);

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

Digest proof_of(std::string_view whose, std::span<const std::byte> said, const Nonce& challenge, const Secret& secret) {
  return hmac_sha256(secret, {bytes_of(whose), bytes_of(kMagic), challenge, said});
}

}  // namespace

Nonce draw_nonce() {
  Nonce nonce;
  size_t drawn = 0;
  while (drawn < nonce.size()) {
    const ssize_t got = getrandom(nonce.data() + drawn, nonce.size() - drawn, 0);
    if (got < 0 && errno != EINTR) {
      throw InternalError(Said::no_random_numbers, {.others = {{"why", strerror(errno)}}});
    }
    drawn += got > 0 ? static_cast<size_t>(got) : 0;
  }
  return nonce;
}

Challenge challenge_with(const Nonce& nonce) {
  Challenge challenge;
  std::memcpy(challenge.data(), kMagic.data(), kMagic.size());
  std::copy(nonce.begin(), nonce.end(), challenge.begin() + kMagic.size());
  return challenge;
}

std::optional<Nonce> read_challenge(std::span<const std::byte, std::tuple_size_v<Challenge>> challenge) {
  if (std::memcmp(challenge.data(), kMagic.data(), kMagic.size()) != 0) return std::nullopt;
  Nonce nonce;
  std::copy(challenge.begin() + kMagic.size(), challenge.end(), nonce.begin());
  return nonce;
}

Hello hello_to(const Nonce& challenge, const Nonce& own, const Introduction& who, const Secret& secret) {
  Hello hello;
  std::memcpy(hello.data(), &who, sizeof who);
  std::memcpy(hello.data() + sizeof who, own.data(), own.size());
  const Digest proof = proof_of(kDialler, std::span(hello).first(kProofAt), challenge, secret);
  std::memcpy(hello.data() + kProofAt, proof.data(), proof.size());
  return hello;
}

std::optional<Introduction> read_hello(const Hello& hello, const Nonce& challenge, const Secret& secret) {
  Digest proof;
  std::memcpy(proof.data(), hello.data() + kProofAt, proof.size());
  if (!are_equal(proof, proof_of(kDialler, std::span(hello).first(kProofAt), challenge, secret))) return std::nullopt;
  Introduction who;
  std::memcpy(&who, hello.data(), sizeof who);
  return who;
}

Answer answer_to(const Hello& hello, const Nonce& challenge, const Secret& secret) {
  return proof_of(kListener, hello, challenge, secret);
}

}  // namespace hvd
