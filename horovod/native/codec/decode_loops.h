// How blocks are decoded, whatever their format. For inclusion in *_kernels.cc only; format_list.h says what a Format is.
#pragma once

#include "codec/halves.h"
#include "codec/kernels.h"
#include "codec/packing.h"
#include "codec/strips.h"

namespace hvd::HVD_SIMD_NAMESPACE {
namespace {

#ifdef HVD_BY_HALVES
template <class Format>
constexpr bool kByHalves = requires { typename Format::Minifloat; };

// Of kHalves codes from the i-th on.
template <class Format, class Factors>
HVD_SCALAR Floats values_at(const uint8_t* codes, Factors scale, int64_t i) {
  return values_of<typename Format::Minifloat>(codes + i) * scale.template at<Floats>(i);
}
#endif

template <class Format, bool kAdd, class Factors>
HVD_SCALAR void decode_elements(const uint8_t* codes, int64_t count, Factors scale, float* y) {
  int64_t done = 0;
#ifdef HVD_BY_HALVES
  if constexpr (kByHalves<Format>) {
    done = count / kHalves * kHalves;
    for (int64_t i = 0; i < done; i += kHalves) {
      auto* out = reinterpret_cast<Floats*>(y + i);
      const Floats values = values_at<Format>(codes, scale, i);
      *out = kAdd ? *out + values : values;
    }
  }
#endif
  for (int64_t i = done; i < count; ++i) {
    const float value = Format::value(codes[i], scale[i]);
    y[i] = kAdd ? y[i] + value : value;
  }
}

template <class Format, bool kAdd>
void decode(const uint8_t* __restrict run, int64_t count, const BlockShape& shape, float* __restrict y) {
  constexpr bool kPacked = Format::kBits != 8;
  const int64_t block = shape.block;
  const uint8_t* codes = run + (count + block - 1) / block * Format::kScaleBytes;
  alignas(64) [[maybe_unused]] uint8_t unpacked[kPacked ? kStrip : 1];
  alignas(64) float factors[kStrip];
  for (int64_t first = 0; first < count; first += kStrip) {
    const int64_t here = count - first < kStrip ? count - first : kStrip;
    if constexpr (kPacked) unpack<Format::kBits>(codes + first * Format::kBits / 8, here, unpacked);
    const uint8_t* in = kPacked ? unpacked : codes + first;
    float* out = y + first;
    const Scales<Format, const uint8_t> scales(run, first, block);
    int64_t done = 0;
    const auto decode_pieces = [&]<int64_t kLength>() {
      for (; done + kLength <= here; done += kLength) {
        decode_elements<Format, kAdd>(in + done, kLength, Factor{factor_at<Format>(scales[done])}, out + done);
      }
    };
    if (block >= kPiece) {
      decode_pieces.template operator()<kPiece>();
    } else if (block == kPiece / 2) {
      decode_pieces.template operator()<kPiece / 2>();
    }
    if (done == here) continue;
    spread(done, here, factors, [=](int64_t i) { return factor_at<Format>(scales[i]); });
    decode_elements<Format, kAdd>(in + done, here - done, FactorOfEach{factors + done}, out + done);
  }
}

}  // namespace
}  // namespace hvd::HVD_SIMD_NAMESPACE
