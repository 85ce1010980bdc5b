// What buckets are made of: tensors, what shall become of them, and memory to compute in.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "codec/codec.h"
#include "collective/reduce.h"

namespace hvd {

struct BucketTensor {
  const void* source = nullptr;
  void* destination = nullptr;  // may equal source, and otherwise does not overlap it
  int64_t count = 0;
  int64_t offset = 0;                // of the first element in the tensor that the next three are about
  uint64_t draw_key = 0;             // of a stochastic codec's random numbers for this rank's contribution
  float* sent_residual = nullptr;    // count floats: what encoding this rank's contribution loses; null: nobody wants it
  float* result_residual = nullptr;  // the same for encoding the result
};

// Memory that buckets compute in, small enough for the L1 cache. Nothing in it outlives a call.
struct Tiles {
  static constexpr int64_t kRun = 4096;  // elements whose float32 sums stay in the L1 cache; a multiple of every block
  alignas(64) float floats[kRun];
  alignas(64) std::byte exact[kRun * sizeof(double)];
};

struct BucketReduction {
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  Scale scale;                   // of the result, the divisor of an Average included
  const Codec* codec = nullptr;  // null: elements travel as they are
};

}  // namespace hvd
