// What buckets are made of: tensors, what shall become of them, stretches of them, and memory to compute in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/dtype.h"
#include "base/error.h"
#include "base/memory.h"
#include "codec/codec.h"
#include "collective/feedback.h"
#include "collective/reduce.h"

namespace hvd {

struct BucketTensor {
  const void* source = nullptr;
  void* destination = nullptr;  // may equal source, and otherwise does not overlap it
  Witness witness;              // of both
  int64_t count = 0;
  int64_t offset = 0;  // of the first element in the whole tensor, which keys and feedback are about

  // A stochastic codec's streams of random numbers: for what this rank contributes, and for results that it owns.
  uint64_t sent_key = 0;
  uint64_t result_key = 0;

  Feedback* feedback = nullptr;  // of the whole tensor; null: what quantisation loses is lost
  // Claimed of it by slices_of(): for each of the count elements what its encoding has lost, or null.
  ClaimedResiduals sent{}, result{};
};

// Throws MemoryGone unless the memory is still there.
inline void require_memory(const BucketTensor& tensor) {
  if (!tensor.witness.holds()) throw MemoryGone("a tensor of " + std::to_string(tensor.count) + " elements");
}

inline int64_t count_of(std::span<const BucketTensor> tensors) {
  int64_t count = 0;
  for (const BucketTensor& tensor : tensors) count += tensor.count;
  return count;
}

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t count() const { return end - begin; }
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

// Elements between two places where a tensor may be cut: a block of the codec, or what a cache line holds.
inline int64_t granule_of(const BucketReduction& reduction) {
  constexpr int64_t kCacheLine = 64;
  return reduction.codec ? reduction.codec->block() : kCacheLine / static_cast<int64_t>(size_of(reduction.dtype));
}

// Of Tiles::kRun elements in a message.
inline int64_t run_bytes(const BucketReduction& reduction) {
  return reduction.codec ? reduction.codec->encoded_bytes(Tiles::kRun)
                         : Tiles::kRun * static_cast<int64_t>(size_of(reduction.dtype));
}

}  // namespace hvd
