// How the blocks of two ranks become their scaled sum, in one pass over memory. For inclusion in *_kernels.cc only;
// format_list.h says what a Format is.
#pragma once

#include "codec/decode_loops.h"

namespace hvd::HVD_SIMD_NAMESPACE {
namespace {

// Blocks below this size are decoded by themselves: their loops cost more.
constexpr int64_t kLargeBlock = 64;

// Codes of a block or a piece of one, and what they are multiplied by.
struct CodedBlock {
  const uint8_t* codes;
  Factor scale;
};

template <class Format>
HVD_SCALAR void decode_two_blocks(CodedBlock a, CodedBlock b, int64_t count, float factor, float* __restrict y) {
  int64_t done = 0;
#ifdef HVD_BY_HALVES
  if constexpr (kByHalves<Format>) {
    done = count / kHalves * kHalves;
    for (int64_t i = 0; i < done; i += kHalves) {
      const Floats sum = values_at<Format>(a.codes, a.scale, i) + values_at<Format>(b.codes, b.scale, i);
      *reinterpret_cast<Floats*>(y + i) = sum * factor;
    }
  }
#endif
  for (int64_t i = done; i < count; ++i) {
    y[i] = (Format::value(a.codes[i], a.scale[i]) + Format::value(b.codes[i], b.scale[i])) * factor;
  }
}

template <class Format>
HVD_SCALAR void decode_two_runs(const TwoRuns& runs, int64_t count, int64_t block, float factor, float* y) {
  const int64_t scales = (count + block - 1) / block * Format::kScaleBytes;
  const auto coded = [=](const uint8_t* run, int64_t i) {
    return CodedBlock{run + scales + i, {factor_at<Format>(Scales<Format, const uint8_t>(run, 0, block)[i])}};
  };
  int64_t i = 0;
  if (block >= kPiece) {
    for (; i + kPiece <= count; i += kPiece) {
      decode_two_blocks<Format>(coded(runs.first, i), coded(runs.second, i), kPiece, factor, y + i);
    }
  }
  for (; i < count; i += block) {
    const int64_t length = count - i < block ? count - i : block;
    decode_two_blocks<Format>(coded(runs.first, i), coded(runs.second, i), length, factor, y + i);
  }
}

// Where that is not worth loops of its own.
template <auto kDecode, auto kDecodeAdd>
HVD_SCALAR void decode_one_by_one(const TwoRuns& runs, int64_t count, const BlockShape& shape, float factor, float* y) {
  kDecode(runs.first, count, shape, y);
  kDecodeAdd(runs.second, count, shape, y);
  for (int64_t i = 0; i < count; ++i) y[i] *= factor;
}

template <class Format>
void decode_two(const TwoRuns& runs, int64_t count, const BlockShape& shape, float factor, float* y) {
  if (Format::kBits != 8 || shape.block < kLargeBlock) {
    decode_one_by_one<decode<Format, false>, decode<Format, true>>(runs, count, shape, factor, y);
  } else {
    decode_two_runs<Format>(runs, count, shape.block, factor, y);
  }
}

}  // namespace
}  // namespace hvd::HVD_SIMD_NAMESPACE
