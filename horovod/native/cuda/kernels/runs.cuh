// Codes of a tile, to and from their places in a message: in each run all scales, then all codes (codec/codec.cc).
#pragma once

#include "cuda/kernels/blocks.cuh"
#include "cuda/kernels/bytes.cuh"

namespace hvd {

template <class Format>
struct PlaceInMessage {
  int64_t scales;  // bytes from the message's start to the tile's first scale
  int64_t codes;
  int scale_count;
  int code_bytes;

  HVD_DEVICE PlaceInMessage(const Tile& tile, const Blocks& blocks) {
    const int tile_number = tile.number;
    const int64_t run_bytes = blocks.count(kRun) * Format::kScaleBytes + kRun * Format::kBits / 8;
    const int64_t run = tile.piece.message_offset + tile.run * run_bytes;
    scales = run + (tile_number * kTile >> blocks.log) * Format::kScaleBytes;
    codes = run + blocks.count(tile.run_count) * Format::kScaleBytes + tile_number * (kTile * Format::kBits / 8);
    scale_count = blocks.count(tile.count);
    code_bytes = (tile.count * Format::kBits + 7) / 8;
  }
};

template <class Format>
HVD_DEVICE void store_scales(uint8_t* at, int count, uint32_t scale) {
  if constexpr (Format::kScaleBytes == 1) {
    if (lane_number() < count) at[lane_number()] = static_cast<uint8_t>(scale);
  } else if constexpr (Format::kScaleBytes == 4) {
    const uint32_t row[1][1] = {{scale}};
    store_rows(at, 4 * count, row);
  }
}

template <class Format>
HVD_DEVICE uint32_t load_scale(const uint8_t* at, int count) {
  if (lane_number() >= count) return 0;
  if constexpr (Format::kScaleBytes == 1) return at[lane_number()];
  if constexpr (Format::kScaleBytes == 4) return load_word(at + 4 * lane_number(), at + 4 * count);
  return 0;
}

// 16 bits of codes for each lane and chunk, two chunks to a row of words: the lanes of the lower half of a warp have the
// row's even chunk, two neighbours' codes in each word.
HVD_DEVICE void store_nibbles(uint8_t* at, int bytes, const uint32_t (&word)[kChunks][1]) {
  uint32_t rows[kChunks / 2][1];
  const int pair = lane_number() * 2 % kLanes;
  const bool is_even_chunk = lane_number() < kLanes / 2;
  HVD_UNROLLED
  for (int r = 0; r < kChunks / 2; ++r) {
    const uint32_t both = word[2 * r][0] | word[2 * r + 1][0] << 16;
    const uint32_t first = __shfl_sync(kAllLanes, both, pair);
    const uint32_t second = __shfl_sync(kAllLanes, both, pair + 1);
    rows[r][0] = __byte_perm(first, second, is_even_chunk ? 0x5410 : 0x7632);
  }
  store_rows(at, bytes, rows);
}

HVD_DEVICE void load_nibbles(const uint8_t* at, int bytes, uint32_t (&word)[kChunks][1]) {
  uint32_t rows[kChunks / 2][1];
  load_rows(at, bytes, rows);
  const int owner = lane_number() / 2;
  const unsigned half = lane_number() % 2 == 0 ? 0x4410 : 0x4432;  // two bytes, then two of zero
  HVD_UNROLLED
  for (int r = 0; r < kChunks / 2; ++r) {
    word[2 * r][0] = __byte_perm(__shfl_sync(kAllLanes, rows[r][0], owner), 0, half);
    word[2 * r + 1][0] = __byte_perm(__shfl_sync(kAllLanes, rows[r][0], owner + kLanes / 2), 0, half);
  }
}

// kBits of codes for each element, of any number: by way of the scratch, where each lane's codes lie in a word of their own, and
// a row's word takes the bits from all it overlaps.
template <int kBits>
HVD_DEVICE void store_packed(uint8_t* at, int bytes, const uint32_t (&word)[kChunks][1]) {
  constexpr int kLaneBits = kBits * kLaneElements;
  uint32_t* words = scratch();
  HVD_UNROLLED
  for (int c = 0; c < kChunks; ++c) words[c * kLanes + lane_number()] = word[c][0];
  __syncwarp();
  uint32_t rows[kBits][1];  // of 32 words: a tile has kTile * kBits bits
  HVD_UNROLLED
  for (int r = 0; r < kBits; ++r) {
    const int begin = (r * kLanes + lane_number()) * 32;
    uint32_t bits = words[begin / kLaneBits] >> begin % kLaneBits;
    HVD_ROLLED
    for (int i = begin / kLaneBits + 1; i * kLaneBits < begin + 32; ++i) bits |= words[i] << (i * kLaneBits - begin);
    rows[r][0] = bits;
  }
  __syncwarp();
  store_rows(at, bytes, rows);
}

template <int kBits>
HVD_DEVICE void load_packed(const uint8_t* at, int bytes, uint32_t (&word)[kChunks][1]) {
  constexpr int kLaneBits = kBits * kLaneElements;
  uint32_t rows[kBits][1];
  load_rows(at, bytes, rows);
  uint32_t* words = scratch();
  HVD_UNROLLED
  for (int r = 0; r < kBits; ++r) words[r * kLanes + lane_number()] = rows[r][0];
  __syncwarp();
  HVD_UNROLLED
  for (int c = 0; c < kChunks; ++c) {
    const int begin = (c * kLanes + lane_number()) * kLaneBits;
    const int end = begin + kLaneBits - 1;
    const uint32_t low = words[begin / 32] >> begin % 32;
    const uint32_t high = begin / 32 == end / 32 ? 0 : words[end / 32] << (32 - begin % 32);
    word[c][0] = (low | high) & ((1u << kLaneBits) - 1);
  }
  __syncwarp();
}

template <class Format>
HVD_DEVICE void store_codes(uint8_t* message, const Tile& tile, const Blocks& blocks, const typename Format::Codes& codes) {
  const PlaceInMessage<Format> place(tile, blocks);
  store_scales<Format>(message + place.scales, place.scale_count, codes.scale);
  if constexpr (Format::kBits == 4) {
    store_nibbles(message + place.codes, place.code_bytes, codes.word);
  } else if constexpr (Format::kBits < 8) {
    store_packed<Format::kBits>(message + place.codes, place.code_bytes, codes.word);
  } else {
    store_rows(message + place.codes, place.code_bytes, codes.word);
  }
}

template <class Format>
HVD_DEVICE void load_codes(const uint8_t* message, const Tile& tile, const Blocks& blocks, typename Format::Codes& codes) {
  const PlaceInMessage<Format> place(tile, blocks);
  codes.scale = load_scale<Format>(message + place.scales, place.scale_count);
  if constexpr (Format::kBits == 4) {
    load_nibbles(message + place.codes, place.code_bytes, codes.word);
  } else if constexpr (Format::kBits < 8) {
    load_packed<Format::kBits>(message + place.codes, place.code_bytes, codes.word);
  } else {
    load_rows(message + place.codes, place.code_bytes, codes.word);
  }
}

}  // namespace hvd
