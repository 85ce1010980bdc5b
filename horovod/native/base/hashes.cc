#include "base/hashes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

namespace hvd {
namespace {

constexpr size_t kBlock = 64;

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
    0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t big_endian(const std::byte* at) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | std::to_integer<uint32_t>(at[i]);
  return value;
}

class Sha256 {
 public:
  void add(std::span<const std::byte> data) {
    length_ += data.size();
    while (!data.empty()) {
      const size_t taken = std::min(kBlock - filled_, data.size());
      std::memcpy(block_ + filled_, data.data(), taken);
      filled_ += taken;
      data = data.subspan(taken);
      if (filled_ == kBlock) compress();
    }
  }

  Digest finish() {
    const uint64_t bits = length_ * 8;
    block_[filled_++] = std::byte{0x80};
    if (filled_ > kBlock - 8) {
      std::fill(block_ + filled_, block_ + kBlock, std::byte{0});
      compress();
    }
    std::fill(block_ + filled_, block_ + kBlock, std::byte{0});
    for (size_t i = 0; i < 8; ++i) block_[kBlock - 1 - i] = static_cast<std::byte>(bits >> (8 * i));
    compress();
    Digest digest;
    for (size_t i = 0; i < digest.size(); ++i) digest[i] = static_cast<std::byte>(state_[i / 4] >> (24 - 8 * (i % 4)));
    return digest;
  }

 private:
  void compress() {
    uint32_t w[64];
    for (size_t i = 0; i < 16; ++i) w[i] = big_endian(block_ + 4 * i);
    for (size_t i = 16; i < 64; ++i) {
      const uint32_t a = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
      const uint32_t b = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
      w[i] = w[i - 16] + a + w[i - 7] + b;
    }
    uint32_t s[8];
    std::copy(std::begin(state_), std::end(state_), s);
    for (size_t i = 0; i < 64; ++i) {
      const uint32_t e = std::rotr(s[4], 6) ^ std::rotr(s[4], 11) ^ std::rotr(s[4], 25);
      const uint32_t first = s[7] + e + ((s[4] & s[5]) ^ (~s[4] & s[6])) + kRound[i] + w[i];
      const uint32_t a = std::rotr(s[0], 2) ^ std::rotr(s[0], 13) ^ std::rotr(s[0], 22);
      const uint32_t second = a + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
      std::copy_backward(s, s + 7, s + 8);
      s[4] += first;
      s[0] = first + second;
    }
    for (size_t i = 0; i < 8; ++i) state_[i] += s[i];
    filled_ = 0;
  }

  // The first 32 bits of the fractional parts of the square roots of the first 8 primes.
  uint32_t state_[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::byte block_[kBlock];
  size_t filled_ = 0;
  uint64_t length_ = 0;
};

constexpr uint32_t kPolynomial = 0x82f63b78;  // reflected

constexpr std::array<uint32_t, 256> kTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1) != 0 ? kPolynomial : 0);
    table[byte] = rest;
  }
  return table;
}();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t crc32c_by_instruction(std::span<const std::byte> data) {
  uint64_t rest = 0xffffffff;
  while (data.size() >= sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, data.data(), sizeof word);
    rest = __builtin_ia32_crc32di(rest, word);
    data = data.subspan(sizeof word);
  }
  auto last = static_cast<uint32_t>(rest);
  for (const std::byte byte : data) last = __builtin_ia32_crc32qi(last, std::to_integer<uint8_t>(byte));
  return ~last;
}
#endif

}  // namespace

Digest sha256(Parts parts) {
  Sha256 hash;
  for (const std::span<const std::byte> part : parts) hash.add(part);
  return hash.finish();
}

Digest hmac_sha256(std::span<const std::byte> key, Parts parts) {
  std::array<std::byte, kBlock> inner{}, outer{};
  const Digest shorter = sha256({key});
  if (key.size() > kBlock) key = shorter;
  std::copy(key.begin(), key.end(), inner.begin());
  outer = inner;
  for (std::byte& byte : inner) byte ^= std::byte{0x36};
  for (std::byte& byte : outer) byte ^= std::byte{0x5c};
  Sha256 hash;
  hash.add(inner);
  for (const std::span<const std::byte> part : parts) hash.add(part);
  const Digest inside = hash.finish();
  return sha256({outer, inside});
}

bool are_equal(const Digest& a, const Digest& b) {
  auto difference = std::byte{0};
  for (size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{0};
}

uint32_t crc32c_by_table(std::span<const std::byte> data) {
  uint32_t rest = 0xffffffff;
  for (const std::byte byte : data) rest = (rest >> 8) ^ kTable[(rest ^ std::to_integer<uint32_t>(byte)) & 0xff];
  return ~rest;
}

uint32_t crc32c(std::span<const std::byte> data) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return crc32c_by_instruction(data);
#endif
  return crc32c_by_table(data);
}

}  // namespace hvd
