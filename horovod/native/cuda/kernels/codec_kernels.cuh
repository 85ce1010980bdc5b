// The kernels of one format, and how the others reach them: each list of formats is compiled in a file of its own.
#pragma once

#include "codec/format_list.h"
#include "cuda/kernels/runs.cuh"
#include "cuda/kernels/sums.cuh"

namespace hvd {

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
