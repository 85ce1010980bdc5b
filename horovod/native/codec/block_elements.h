// What the loops of formats with blocks read: elements and random numbers. For inclusion in *_kernels.cc only, like
// block_loops.h: compiled once per instruction set, in a namespace of its own.
#pragma once

#include "codec/kernels.h"
#include "codec/minifloat.h"
#include "codec/random_bits.h"

namespace hvd::HVD_SIMD_NAMESPACE {
namespace {

// Element i times the prescale factor; without kScaled the factor is one, and no multiplication is spent on it.
template <bool kScaled>
struct Scaled {
  const float* x;
  float prescale;

  HVD_SCALAR float operator[](int64_t i) const { return kScaled ? x[i] * prescale : x[i]; }
  HVD_SCALAR Scaled from(int64_t i) const { return {x + i, prescale}; }
};

// The numbers of one stream; the stream's state is kept while the upper half of the numbers' index stays.
class Numbers {
 public:
  Numbers(uint64_t seed, Draw draw)
      : seed_(seed), key_(draw.key), first_(static_cast<uint64_t>(draw.first)), high_(~0u), stream_{} {}

  // Numbers first + begin and so on, `count` of them.
  [[gnu::noinline]] void fill(int64_t begin, int64_t count, uint32_t* __restrict numbers) {
    while (count > 0) {
      const uint64_t n = first_ + static_cast<uint64_t>(begin);
      const uint32_t high = static_cast<uint32_t>(n >> 32);
      const uint32_t low = static_cast<uint32_t>(n);
      if (high != high_) stream_ = random_stream(seed_, key_, high_ = high);
      const int64_t left = (int64_t{1} << 32) - low;
      const int64_t length = count < left ? count : left;
      const RandomStream stream = stream_;
      for (int64_t i = 0; i < length; ++i) numbers[i] = random_bits(stream, low + static_cast<uint32_t>(i));
      begin += length;
      count -= length;
      numbers += length;
    }
  }

 private:
  const uint64_t seed_;
  const uint64_t key_;
  const uint64_t first_;
  uint32_t high_;
  RandomStream stream_;
};

// The largest float magnitude is also the largest integer: the maximum needs no float compare.
template <bool kSkipsNonFinite, class Elements>
HVD_SCALAR uint32_t largest_magnitude(Elements x, int64_t count) {
  int32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto magnitude = static_cast<int32_t>(kSkipsNonFinite ? finite_magnitude(x[i]) : bits_of(x[i]) & ~kSignBit);
    largest = magnitude > largest ? magnitude : largest;
  }
  return static_cast<uint32_t>(largest);
}

}  // namespace
}  // namespace hvd::HVD_SIMD_NAMESPACE
