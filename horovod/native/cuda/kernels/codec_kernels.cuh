// The kernels of one format: its codes in messages, what is kept of what they lose, and what the host launches. Each list of
// formats is compiled in a file of its own.
#pragma once

#include "codec/format_list.h"
#include "cuda/kernels/blocks.cuh"
#include "cuda/kernels/bytes.cuh"
#include "cuda/kernels/elements.cuh"

namespace hvd {

// ---- codes of a tile, to and from their places in a message ---------------------------------------------------------

// In each run all scales, then all codes (codec/codec.cc).
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

// kBits of codes for each element, of any number: by way of the scratch, where each lane's codes lie in a word of their own,
// and a row's word takes the bits from all it overlaps.
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

// ---- kernels --------------------------------------------------------------------------------------------------------

// What the host launches; one table for each format.
struct FormatKernels {
  void (*encode)(Blocks, DType, PieceTable, float prescale, uint8_t* message, unsigned long long* saturated);
  void (*decode)(Blocks, DType, PieceTable, const uint8_t* message);
  void (*reduce)(Blocks, PieceTable, Reduction, unsigned long long* saturated);
};

// Counts in the host's memory, far away: nobody goes there who has nothing to say.
HVD_DEVICE void count_saturated(int of_lane, unsigned long long* saturated) {
  if (!__any_sync(kAllLanes, of_lane != 0)) return;
  HVD_UNROLLED
  for (int distance = 1; distance < kLanes; distance *= 2) of_lane += __shfl_xor_sync(kAllLanes, of_lane, distance);
  if (lane_number() == 0) atomicAdd(saturated, static_cast<unsigned long long>(of_lane));
}

// What is kept of what a tile's codes lose: see codec/residual_bound.h. The warps of an operation all read the bound of the one
// before, and count in another, from which nobody reads.
class KeptResiduals {
 public:
  HVD_DEVICE explicit KeptResiduals(const Tile& tile) : count_(tile.count) {
    const DevicePiece& piece = tile.piece;
    if (piece.bounds == nullptr) return;
    const float usual = piece.bounds[slot(piece.turn)].next();
    limit_ = ResidualBound{usual}.limit();
    counted_ = &piece.bounds[slot(piece.turn + 1)];
    if (tile.run != 0 || tile.number != 0 || lane_number() != 0) return;
    counted_->usual = usual;  // the same from every piece of the tensor
    piece.bounds[slot(piece.turn + 2)].largest = 0;
  }
  HVD_DEVICE float kept(int place, float lost) {
    const uint32_t magnitude = place < count_ ? bits_of(lost) & ~kSignBit : 0;
    largest_ = max(largest_, magnitude);
    return magnitude <= limit_ ? lost : 0.0f;
  }
  HVD_DEVICE void count() {
    if (counted_ == nullptr) return;
    HVD_UNROLLED
    for (int distance = 1; distance < kLanes; distance *= 2) {
      largest_ = max(largest_, __shfl_xor_sync(kAllLanes, largest_, distance));
    }
    if (lane_number() == 0) atomicMax(&counted_->largest, largest_);
  }

 private:
  HVD_DEVICE static int slot(int64_t turn) { return static_cast<int>(turn % ResidualBounds::kSlots); }

  const int count_;
  uint32_t limit_ = kInfinity - 1, largest_ = 0;
  ResidualBound* counted_ = nullptr;
};

// Writes the codes of x (+ residual), and keeps what they lose.
template <class Format>
HVD_DEVICE void encode_tile(Elements& x, const Blocks& blocks, const Tile& tile, uint8_t* message,
                            unsigned long long* saturated) {
  float* residual = tile.piece.residual == nullptr ? nullptr : tile.piece.residual + tile.begin();
  if (residual != nullptr) {
    Elements kept;
    load_elements(residual, tile.count, kept);
    HVD_UNROLLED
    for (int c = 0; c < kChunks; ++c) {
      HVD_UNROLLED
      for (int j = 0; j < kLaneElements; ++j) x[c][j] += kept[c][j];
    }
  }
  typename Format::Codes codes;
  Format::encode(x, blocks, tile, codes);
  if constexpr (requires { codes.saturated; }) count_saturated(codes.saturated, saturated);
  if (residual != nullptr) {
    KeptResiduals residuals(tile);
    Format::decode(codes, blocks, tile,
                   [&](int c, int j, float value) { x[c][j] = residuals.kept(job_hosts_of(c, j), x[c][j] - value); });
    residuals.count();
    store_elements(x, tile.count, residual);
  }
  store_codes<Format>(message, tile, blocks, codes);
}

// The second launch bound is how many thread blocks are to fit on a multiprocessor at once, and so how many registers a thread
// may have: as many blocks as nothing is spilled for. 4 blocks of the sum have 16 warps, each with 1 KiB of the next
// contribution on its way; of about 20 KiB that are to be under way, what is read is half.
template <class Format>
__global__ void __launch_bounds__(kThreads, Format::kRotates ? 3 : 5)
    encode_kernel(Blocks blocks, DType dtype, PieceTable table, float prescale, uint8_t* message,
                  unsigned long long* saturated) {
  const Tile tile = own_tile(table);
  if (tile.count == 0) return;
  Elements x;
  with_elements<true>(dtype, tile.piece.source, tile.begin(), [&](auto* at) { load_elements(at, tile.count, x); });
  multiply(x, prescale);
  encode_tile<Format>(x, blocks, tile, message, saturated);
}

template <class Format>
__global__ void __launch_bounds__(kThreads, Format::kRotates ? 4 : 7)
    decode_kernel(Blocks blocks, DType dtype, PieceTable table, const uint8_t* message) {
  const Tile tile = own_tile(table);
  if (tile.count == 0) return;
  typename Format::Codes codes;
  load_codes<Format>(message, tile, blocks, codes);
  Elements y;
  Format::decode(codes, blocks, tile, [&](int c, int j, float value) { y[c][j] = value; });
  with_elements<true>(dtype, tile.piece.destination, tile.begin(), [&](auto* at) { store_elements(y, tile.count, at); });
}

// The codes of the next contribution are on their way while those of the last are added.
template <class Format>
HVD_DEVICE void sum_codes(const Reduction& reduction, const Blocks& blocks, const Tile& tile, Elements& sum) {
  typename Format::Codes codes, next;
  HVD_ROLLED
  for (int i = 0; i <= reduction.count; ++i) {
    codes = next;
    if (i < reduction.count) load_codes<Format>(reduction.messages[i], tile, blocks, next);
    if (i == 0) continue;
    Format::decode(codes, blocks, tile, [&](int c, int j, float value) { sum[c][j] = i == 1 ? value : sum[c][j] + value; });
  }
}

// From codes to codes, elements to codes, or codes to elements.
template <class Format>
__global__ void __launch_bounds__(kThreads, Format::kRotates ? 3 : 4)
    reduce_kernel(Blocks blocks, PieceTable table, Reduction reduction, unsigned long long* saturated) {
  const Tile tile = own_tile(table);
  if (tile.count == 0) return;
  Elements sum;
  if (reduction.sums_codes) {
    sum_codes<Format>(reduction, blocks, tile, sum);
  } else {
    sum_elements(reduction, tile, sum);
  }
  multiply(sum, reduction.factor);
  if (reduction.to_destination) store_sum(reduction, tile, sum, tile.piece.destination);
  if (reduction.result == nullptr) return;
  if (reduction.result_is_codes) {
    encode_tile<Format>(sum, blocks, tile, reduction.result, saturated);
  } else {
    store_sum(reduction, tile, sum, reduction.result + reduction.elements_offset(tile.piece));
  }
}

template <class Format>
FormatKernels kernels_of() {
  return {encode_kernel<Format>, decode_kernel<Format>, reduce_kernel<Format>};
}

// Of the rows of format_list.h, each list by itself.
FormatKernels sixteen_bit_kernels(int row);
FormatKernels plain_kernels(int row);
FormatKernels rotated_kernels(int row);

}  // namespace hvd
