// The random numbers of stochastic rounding: counter based, so that number n of a stream is a function of n alone and a
// plain loop over them vectorises. This header is the definition; docs/wire_format.md gives it in words and in NumPy.
//
//   stream := scramble(scramble(scramble(seed) ^ key) ^ (n >> 32)), 64 bits: what the codec's seed and the call's key make
//   number := 32 bits, mixed from the lower half of n and the stream's two halves
//
// Constants: scramble is the output function of SplitMix64 (Steele, Lea, Flood 2014); the 32-bit mixer is "lowbias32"
// (Wellons, public domain), found by a search for small avalanche bias. Two streams share numbers, at other places, only
// if the lower halves differ in few bits and the upper ones not at all: one pair of keys in 2^32.
#pragma once

#include <cstdint>

#include "codec/minifloat.h"

namespace hvd {

HVD_SCALAR uint64_t scramble(uint64_t z) {
  z += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// Numbers n = low + 2^32 * high of a stream, for one `high`.
struct RandomStream {
  uint32_t first_half;
  uint32_t second_half;
};

HVD_SCALAR RandomStream random_stream(uint64_t seed, uint64_t key, uint32_t high) {
  const uint64_t stream = scramble(scramble(scramble(seed) ^ key) ^ high);
  return {static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)};
}

HVD_SCALAR uint32_t random_bits(RandomStream stream, uint32_t low) {
  uint32_t h = low ^ stream.first_half;
  h = (h ^ (h >> 16)) * 0x7FEB352Du;
  h = (h ^ (h >> 15)) * 0x846CA68Bu;
  h = (h ^ (h >> 16) ^ stream.second_half) * 0x9E3779B1u;
  return h ^ (h >> 15);
}

// Number n of stream (seed, key).
HVD_SCALAR uint32_t random_number(uint64_t seed, uint64_t key, uint64_t n) {
  return random_bits(random_stream(seed, key, static_cast<uint32_t>(n >> 32)), static_cast<uint32_t>(n));
}

// The sign bit, or not, of element i of every rotated block: a stream that no other key is likely to be.
HVD_SCALAR uint32_t rotation_sign(uint64_t seed, uint64_t i) {
  return random_number(seed, 0x524F544154494F4Eu /* "ROTATION" */, i) & kSignBit;
}

}  // namespace hvd
