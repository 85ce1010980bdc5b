// Sums of elements as they are, in float32, and what a reduction does with its sum.
#pragma once

#include "cuda/kernels/elements.cuh"

namespace hvd {

// A DeviceReduction, as kernels are given it.
struct Reduction {
  DType dtype = DType::kFloat32;
  bool sums_codes = false;  // or elements
  bool result_is_codes = false;
  bool to_destination = false;
  float prescale = 1.0f;
  float factor = 1.0f;
  uint8_t* result = nullptr;
  int count = 0;  // of messages
  const uint8_t* messages[DeviceKernels::kMostContributions] = {};

  HVD_DEVICE int64_t elements_offset(const DevicePiece& piece) const {
    return sums_codes || result_is_codes ? piece.elements_offset : piece.message_offset;
  }
};

HVD_DEVICE void multiply(Elements& x, float factor) {
  if (factor == 1.0f) return;
  HVD_UNROLLED
  for (int c = 0; c < kChunks; ++c) {
    HVD_UNROLLED
    for (int j = 0; j < kLaneElements; ++j) x[c][j] = times_keeping_nan(x[c][j], factor);
  }
}

// Element by element of the tile, in the order of contributions.
HVD_DEVICE void sum_elements(const Reduction& reduction, const Tile& tile, Elements& sum) {
  const int64_t offset = reduction.elements_offset(tile.piece);
  HVD_ROLLED
  for (int i = 0; i < reduction.count; ++i) {
    const uint8_t* message = reduction.messages[i];
    const void* piece = message == nullptr ? tile.piece.source : message + offset;
    Elements x;
    with_elements<false>(reduction.dtype, piece, tile.begin(), [&](auto* at) { load_elements(at, tile.count, x); });
    multiply(x, reduction.prescale);
    HVD_UNROLLED
    for (int c = 0; c < kChunks; ++c) {
      HVD_UNROLLED
      for (int j = 0; j < kLaneElements; ++j) sum[c][j] = i == 0 ? x[c][j] : sum[c][j] + x[c][j];
    }
  }
}

HVD_DEVICE void store_sum(const Reduction& reduction, const Tile& tile, const Elements& sum, void* piece) {
  with_elements<false>(reduction.dtype, piece, tile.begin(), [&](auto* at) { store_elements(sum, tile.count, at); });
}

}  // namespace hvd
