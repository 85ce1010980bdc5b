// Runs are worked through by strips of a few blocks. For inclusion in *_kernels.cc only, like block_loops.h.
#pragma once

#include "codec/minifloat.h"

namespace hvd::HVD_SIMD_NAMESPACE {
namespace {

constexpr int64_t kStrip = 1024;  // elements
// Blocks below this size share one loop over the strip, with a factor for each element: loops of their own cost more.
constexpr int64_t kLargeBlock = 64;

// One factor for all elements of a loop.
struct Factor {
  float value;
  HVD_SCALAR float operator[](int64_t) const { return value; }
  template <class Vector>
  HVD_SCALAR Vector at(int64_t) const { return value - Vector{}; }  // in all of its elements
};

// One for each.
struct FactorOfEach {
  const float* values;
  HVD_SCALAR float operator[](int64_t i) const { return values[i]; }
  template <class Vector>
  HVD_SCALAR Vector at(int64_t i) const { return *reinterpret_cast<const Vector*>(values + i); }
};

// Calls use(i, length) for every block of a strip of `count` elements; a compiler that knows `block` sees that of all
// calls but the last.
template <class Use>
HVD_SCALAR void for_blocks(int64_t count, int64_t block, Use use) {
  const int64_t full = count / block * block;
  for (int64_t i = 0; i < full; i += block) use(i, block);
  if (full < count) use(full, count - full);
}

}  // namespace
}  // namespace hvd::HVD_SIMD_NAMESPACE
