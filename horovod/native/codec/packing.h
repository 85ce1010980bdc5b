// Scales and codes at any address, and two codes to a byte. For inclusion in *_kernels.cc only, like block_loops.h.
#pragma once

#include "codec/minifloat.h"

namespace hvd::HVD_SIMD_NAMESPACE {
namespace {

struct __attribute__((packed, may_alias)) UnalignedFloat {
  float value;
};

HVD_SCALAR void put_float(float value, uint8_t* at) { reinterpret_cast<UnalignedFloat*>(at)->value = value; }
HVD_SCALAR float get_float(const uint8_t* at) { return reinterpret_cast<const UnalignedFloat*>(at)->value; }

struct __attribute__((packed, may_alias)) UnalignedPair {
  uint16_t codes;
};

// Codes of 4 bits, of which two make a byte: an even element's in the lower bits.
HVD_SCALAR void pack(const uint8_t* __restrict codes, int64_t count, uint8_t* __restrict pairs) {
  const auto* both = reinterpret_cast<const UnalignedPair*>(codes);
  for (int64_t k = 0; k < count / 2; ++k) pairs[k] = static_cast<uint8_t>((both[k].codes & 15) | (both[k].codes >> 4 & 240));
  if (count % 2 != 0) pairs[count / 2] = codes[count - 1] & 15;
}

HVD_SCALAR void unpack(const uint8_t* __restrict pairs, int64_t count, uint8_t* __restrict codes) {
  auto* both = reinterpret_cast<UnalignedPair*>(codes);
  for (int64_t k = 0; k < count / 2; ++k) both[k].codes = static_cast<uint16_t>((pairs[k] & 15) | (pairs[k] & 240) << 4);
  if (count % 2 != 0) codes[count - 1] = pairs[count / 2] & 15;
}

}  // namespace
}  // namespace hvd::HVD_SIMD_NAMESPACE
