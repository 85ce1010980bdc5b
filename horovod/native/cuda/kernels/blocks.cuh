// Blocks of a tile: how lanes find a block's maximum together, and its scale. The lane of a block's number, if any, is where
// the scale is computed, once; all others ask it.
#pragma once

#include "codec/random_bits.h"
#include "cuda/kernels/tile.cuh"

namespace hvd {

// A codec, as kernels are given it.
struct Blocks {
  uint64_t seed = 0;
  int log = 0;  // of a block's elements
  bool is_stochastic = false;

  HVD_DEVICE int elements() const { return 1 << log; }
  HVD_DEVICE int count(int of_elements) const { return (of_elements + elements() - 1) >> log; }
  // The block that this lane's elements of a chunk are in.
  HVD_DEVICE int number_of(int chunk) const { return place_of(chunk, 0) >> log; }
};

// What a tile becomes: codes where their elements are, the scale at the lane that has the block's number.
template <int kWordsOfLane>
struct Codes {
  static constexpr int kWords = kWordsOfLane;
  uint32_t scale = 0;
  uint32_t word[kChunks][kWords];
};

// Every lane's values become its blocks' maxima.
HVD_DEVICE void find_block_maxima(const Blocks& blocks, uint32_t (&value)[kChunks]) {
  HVD_UNROLLED
  for (int width = 1; width < kChunks; width *= 2) {
    if (kChunk * width >= blocks.elements()) break;
    HVD_UNROLLED
    for (int c = 0; c < kChunks; ++c) {
      if ((c & width) == 0) value[c] = value[c + width] = max(value[c], value[c + width]);
    }
  }
  HVD_UNROLLED
  for (int distance = 1; distance < kLanes; distance *= 2) {
    if (kLaneElements * distance >= blocks.elements()) break;
    HVD_UNROLLED
    for (int c = 0; c < kChunks; ++c) value[c] = max(value[c], __shfl_xor_sync(kAllLanes, value[c], distance));
  }
}

// The value of the block that has this lane's number, from lanes that have it by chunk.
template <typename T>
HVD_DEVICE T of_own_block(const Blocks& blocks, const T (&value)[kChunks]) {
  const int first = lane_number() << blocks.log;
  T own{};
  HVD_UNROLLED
  for (int c = 0; c < kChunks; ++c) {
    const T there = __shfl_sync(kAllLanes, value[c], first % kChunk / kLaneElements);
    if (first / kChunk == c) own = there;
  }
  return own;
}

// The other way round: what the lane of a chunk's block has.
template <typename T>
HVD_DEVICE T from_block(const Blocks& blocks, T own, int chunk) {
  return __shfl_sync(kAllLanes, own, blocks.number_of(chunk));
}

// |x| as bits, at most, over this lane's elements of each chunk. Infinities and NaN count.
HVD_DEVICE void find_magnitudes(const Elements& x, uint32_t (&largest)[kChunks]) {
  HVD_UNROLLED
  for (int c = 0; c < kChunks; ++c) {
    largest[c] = 0;
    HVD_UNROLLED
    for (int j = 0; j < kLaneElements; ++j) largest[c] = max(largest[c], bits_of(x[c][j]) & ~kSignBit);
  }
}

// The random numbers of a tile's elements.
class Numbers {
 public:
  HVD_DEVICE Numbers(const Blocks& blocks, const Tile& tile) {
    const uint64_t n = static_cast<uint64_t>(tile.piece.first_number + tile.begin());
    const auto high = static_cast<uint32_t>(n >> 32);
    first_ = static_cast<uint32_t>(n);
    stream_ = random_stream(blocks.seed, tile.piece.key, high);
    next_ = random_stream(blocks.seed, tile.piece.key, high + 1);
  }
  HVD_DEVICE uint32_t at(int place) const {
    const uint32_t low = first_ + static_cast<uint32_t>(place);
    return random_bits(low < first_ ? next_ : stream_, low);
  }

 private:
  uint32_t first_;
  RandomStream stream_, next_;
};

}  // namespace hvd
