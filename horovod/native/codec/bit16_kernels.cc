// IEEE halves, vectorised by the compiler: compiled once per instruction set. The run may stand at any address.
#include <cstring>

#include "codec/kernels.h"
#include "codec/minifloat.h"

namespace hvd::HVD_SIMD_NAMESPACE {
namespace {

struct __attribute__((packed, may_alias)) UnalignedHalf {
  uint16_t bits;
};

int64_t encode(const float* __restrict x, int64_t count, float prescale, uint8_t* __restrict run) {
  auto* codes = reinterpret_cast<UnalignedHalf*>(run);
  int64_t saturated = 0;
  for (int64_t start = 0; start < count; start += 4096) {
    const int64_t end = start + 4096 < count ? start + 4096 : count;
    uint32_t here = 0;  // 32 bits wide, like the floats, so that counting vectorises with the rest
    for (int64_t i = start; i < end; ++i) {
      const float value = x[i] * prescale;
      here += half_saturates(value) ? 1u : 0u;
      codes[i].bits = saturating_half_from_float(value);
    }
    saturated += here;
  }
  return saturated;
}

template <bool kAdd>
void decode_run(const uint8_t* __restrict run, int64_t count, float* __restrict y) {
  const auto* codes = reinterpret_cast<const UnalignedHalf*>(run);
  for (int64_t i = 0; i < count; ++i) {
    const float value = float_from_half(codes[i].bits);
    y[i] = kAdd ? y[i] + value : value;
  }
}

void decode_two(const TwoRuns& runs, int64_t count, float factor, float* __restrict y) {
  const auto* first = reinterpret_cast<const UnalignedHalf*>(runs.first);
  const auto* second = reinterpret_cast<const UnalignedHalf*>(runs.second);
  for (int64_t i = 0; i < count; ++i) {
    y[i] = (float_from_half(first[i].bits) + float_from_half(second[i].bits)) * factor;
  }
}

}  // namespace

extern const Bit16Kernels bit16_kernels;
const Bit16Kernels bit16_kernels = {encode, decode_run<false>, decode_run<true>, decode_two};

}  // namespace hvd::HVD_SIMD_NAMESPACE
