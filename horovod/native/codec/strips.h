// Runs are worked through by strips of a few blocks. For inclusion in *_kernels.cc only, like block_loops.h.
#pragma once

#include "codec/kernels.h"
#include "codec/minifloat.h"
#include "codec/packing.h"

namespace hvd::HVD_SIMD_NAMESPACE {
namespace {

constexpr int64_t kStrip = 1024;  // elements; a multiple of every block size
// Blocks of whole pieces are worked through piece by piece, with one factor for each; those of smaller blocks share one loop
// over the strip, with a factor for each element: loops of their own cost more.
constexpr int64_t kPiece = 128;

// Where the scales of a strip's blocks stand.
template <class Format, class Byte>
struct Scales {
  Byte* first;
  int shift;  // of an element's index, for that of its block: block sizes are powers of two

  Scales(Byte* run, int64_t first_element, int64_t block)
      : first(run + first_element / block * Format::kScaleBytes), shift(__builtin_ctzll(static_cast<uint64_t>(block))) {}
  HVD_SCALAR Byte* operator[](int64_t i) const { return first + (i >> shift) * Format::kScaleBytes; }
};

// What elements are multiplied by before they are rounded, and codes after it, by the scale at an address.
template <class Format>
HVD_SCALAR float inverse_at(const uint8_t* scale) {
  return Format::inverse(get_scale<Format>(scale));
}
template <class Format>
HVD_SCALAR float factor_at(const uint8_t* scale) {
  return Format::factor(get_scale<Format>(scale));
}

// One factor for all elements of a loop.
struct Factor {
  float value;
  HVD_SCALAR float operator[](int64_t) const { return value; }
  template <class Vector>
  HVD_SCALAR Vector at(int64_t) const {
    return value - Vector{};
  }  // in all of its elements
};

// One for each.
struct FactorOfEach {
  const float* values;
  HVD_SCALAR float operator[](int64_t i) const { return values[i]; }
  template <class Vector>
  HVD_SCALAR Vector at(int64_t i) const {
    return *reinterpret_cast<const Vector*>(values + i);
  }
};

// factor(i) for each of the elements begin to end of a strip; `begin` starts a block or a piece.
template <class FactorAt>
HVD_SCALAR void spread(int64_t begin, int64_t end, float* __restrict factors, FactorAt factor) {
  constexpr int64_t kTogether = kSmallestBlock;
  int64_t i = begin;
  for (; i + kTogether <= end; i += kTogether) {
    const float value = factor(i);
    for (int64_t j = 0; j < kTogether; ++j) factors[i + j] = value;
  }
  if (i == end) return;
  const float value = factor(i);
  for (; i < end; ++i) factors[i] = value;
}

}  // namespace
}  // namespace hvd::HVD_SIMD_NAMESPACE
