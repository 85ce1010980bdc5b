// 16-bit floats, vectorised by the compiler: compiled once per instruction set. The run may stand at any address.
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
    uint32_t here = 0;  // 32 bits wide, like the floats, so that counting vectorises with the rest
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

}  // namespace

extern const RoundingKernels sixteen_bit_kernels[kSixteenBitFormats];
#define HVD_KERNELS(name, format, variant, Trait) kernels_of<Trait>(),
const RoundingKernels sixteen_bit_kernels[kSixteenBitFormats] = {HVD_FOR_EACH_SIXTEEN_BIT_FORMAT(HVD_KERNELS)};
#undef HVD_KERNELS

}  // namespace hvd::HVD_SIMD_NAMESPACE
