// The kernels of 16-bit floats as codes, without alignment, and conversions of tensors of any floating-point dtype from and to
// float32. Compiled once per instruction set and vectorised by the compiler.
#include <cstring>

#include "codec/kernels.h"

namespace hvd::HVD_SIMD_NAMESPACE {
namespace {

struct __attribute__((packed, may_alias)) UnalignedCode {
  uint16_t bits;
};

template <class Format>
int64_t encode(const float* __restrict x, int64_t count, const BlockShape&, float prescale, Draw, uint8_t* __restrict run) {
  auto* codes = reinterpret_cast<UnalignedCode*>(run);
  int64_t saturated = 0;
  for (int64_t start = 0; start < count; start += 4096) {
    const int64_t end = start + 4096 < count ? start + 4096 : count;
    uint32_t here = 0;  // 32 bits wide like the floats, so that the count vectorises too
    for (int64_t i = start; i < end; ++i) {
      const float value = x[i] * prescale;
      if (Format::kSaturates) here += half_saturates(value) ? 1u : 0u;
      codes[i].bits = Format::code(value);
    }
    saturated += here;
  }
  return saturated;
}

template <class Format, bool kAdd>
void decode(const uint8_t* __restrict run, int64_t count, const BlockShape&, float* __restrict y) {
  const auto* codes = reinterpret_cast<const UnalignedCode*>(run);
  for (int64_t i = 0; i < count; ++i) {
    const float value = Format::value(codes[i].bits);
    y[i] = kAdd ? y[i] + value : value;
  }
}

template <class Format>
void decode_two(const TwoRuns& runs, int64_t count, const BlockShape&, float factor, float* __restrict y) {
  const auto* first = reinterpret_cast<const UnalignedCode*>(runs.first);
  const auto* second = reinterpret_cast<const UnalignedCode*>(runs.second);
  for (int64_t i = 0; i < count; ++i) y[i] = (Format::value(first[i].bits) + Format::value(second[i].bits)) * factor;
}

template <class Format>
constexpr RoundingKernels kernels_of() {
  return {{{encode<Format>, decode<Format, false>, decode<Format, true>, decode_two<Format>}}};
}

// ---- tensors --------------------------------------------------------------------------------------------------------

void to_float(DType dtype, const void* source, int64_t count, float* __restrict y) {
  if (dtype == DType::kFloat32) {
    std::memcpy(y, source, static_cast<size_t>(count) * sizeof(float));
  } else if (dtype == DType::kFloat16) {
    const auto* __restrict x = static_cast<const Float16*>(source);
    for (int64_t i = 0; i < count; ++i) y[i] = float_from_half(x[i].bits);
  } else if (dtype == DType::kBFloat16) {
    const auto* __restrict x = static_cast<const BFloat16*>(source);
    for (int64_t i = 0; i < count; ++i) y[i] = float_from_bfloat16(x[i].bits);
  } else {
    const auto* __restrict x = static_cast<const double*>(source);
    for (int64_t i = 0; i < count; ++i) y[i] = static_cast<float>(x[i]);
  }
}

void from_float(DType dtype, const float* __restrict x, int64_t count, void* destination) {
  if (dtype == DType::kFloat32) {
    std::memcpy(destination, x, static_cast<size_t>(count) * sizeof(float));
  } else if (dtype == DType::kFloat16) {
    auto* __restrict y = static_cast<Float16*>(destination);
    for (int64_t i = 0; i < count; ++i) y[i].bits = half_from_float(x[i]);
  } else if (dtype == DType::kBFloat16) {
    auto* __restrict y = static_cast<BFloat16*>(destination);
    for (int64_t i = 0; i < count; ++i) y[i].bits = bfloat16_from_float(x[i]);
  } else {
    auto* __restrict y = static_cast<double*>(destination);
    for (int64_t i = 0; i < count; ++i) y[i] = x[i];
  }
}

}  // namespace

extern const RoundingKernels sixteen_bit_kernels[kSixteenBitFormats];
#define HVD_KERNELS(name, format, variant, Trait) kernels_of<Trait>(),
const RoundingKernels sixteen_bit_kernels[kSixteenBitFormats] = {HVD_FOR_EACH_SIXTEEN_BIT_FORMAT(HVD_KERNELS)};
#undef HVD_KERNELS

extern const ConvertKernels convert_kernels;
const ConvertKernels convert_kernels = {to_float, from_float};

}  // namespace hvd::HVD_SIMD_NAMESPACE
