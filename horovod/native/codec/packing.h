// Scales and codes at any address, and codes of less than a byte side by side. For inclusion in *_kernels.cc only, like
// block_loops.h.
#pragma once

#include "codec/minifloat.h"

namespace hvd::HVD_SIMD_NAMESPACE {
namespace {

struct __attribute__((packed, may_alias)) UnalignedWord {
  uint32_t value;
};

HVD_SCALAR void put_float(float value, uint8_t* at) { reinterpret_cast<UnalignedWord*>(at)->value = bits_of(value); }
HVD_SCALAR float get_float(const uint8_t* at) { return float_of(reinterpret_cast<const UnalignedWord*>(at)->value); }

// A block's scale, as the format's trait has it.
template <class Format>
HVD_SCALAR void put_scale(uint32_t scale, uint8_t* at) {
  if constexpr (Format::kScaleBytes == 1) {
    *at = static_cast<uint8_t>(scale);
  } else {
    reinterpret_cast<UnalignedWord*>(at)->value = scale;
  }
}
template <class Format>
HVD_SCALAR uint32_t get_scale(const uint8_t* at) {
  if constexpr (Format::kScaleBytes == 1) return *at;
  return reinterpret_cast<const UnalignedWord*>(at)->value;
}

struct __attribute__((packed, may_alias)) UnalignedPair {
  uint16_t codes;
};

// Codes of 4 bits, of which two make a byte: an even element's in the lower bits.
HVD_SCALAR void pack_nibbles(const uint8_t* __restrict codes, int64_t count, uint8_t* __restrict pairs) {
  const auto* both = reinterpret_cast<const UnalignedPair*>(codes);
  for (int64_t k = 0; k < count / 2; ++k) pairs[k] = static_cast<uint8_t>((both[k].codes & 15) | (both[k].codes >> 4 & 240));
  if (count % 2 != 0) pairs[count / 2] = codes[count - 1] & 15;
}

HVD_SCALAR void unpack_nibbles(const uint8_t* __restrict pairs, int64_t count, uint8_t* __restrict codes) {
  auto* both = reinterpret_cast<UnalignedPair*>(codes);
  for (int64_t k = 0; k < count / 2; ++k) both[k].codes = static_cast<uint16_t>((pairs[k] & 15) | (pairs[k] & 240) << 4);
  if (count % 2 != 0) codes[count - 1] = pairs[count / 2] & 15;
}

// Eight codes are as many bytes as a code has bits, whatever their number. They meet by twos, by fours, and all.
template <int kBits>
HVD_SCALAR uint64_t joined(uint64_t codes) {
  constexpr int kGap = 8 - kBits;
  constexpr uint64_t kOne = (1ull << kBits) - 1, kTwo = (1ull << 2 * kBits) - 1, kFour = (1ull << 4 * kBits) - 1;
  codes = (codes & kOne * 0x0001000100010001u) | (codes >> kGap & (kOne << kBits) * 0x0001000100010001u);
  codes = (codes & kTwo * 0x0000000100000001u) | (codes >> 2 * kGap & (kTwo << 2 * kBits) * 0x0000000100000001u);
  return (codes & kFour) | (codes >> 4 * kGap & kFour << 4 * kBits);
}
template <int kBits>
HVD_SCALAR uint64_t parted(uint64_t codes) {
  constexpr int kGap = 8 - kBits;
  constexpr uint64_t kOne = (1ull << kBits) - 1, kTwo = (1ull << 2 * kBits) - 1, kFour = (1ull << 4 * kBits) - 1;
  codes = (codes & kFour) | (codes & kFour << 4 * kBits) << 4 * kGap;
  codes = (codes & kTwo * 0x0000000100000001u) | (codes & (kTwo << 2 * kBits) * 0x0000000100000001u) << 2 * kGap;
  return (codes & kOne * 0x0001000100010001u) | (codes & (kOne << kBits) * 0x0001000100010001u) << kGap;
}

// Codes a byte each, as a stream of kBits each: the first in the lowest bits. The last byte's upper bits may be padding, 0.
template <int kBits>
HVD_SCALAR void pack(const uint8_t* __restrict codes, int64_t count, uint8_t* __restrict packed) {
  if constexpr (kBits == 4) return pack_nibbles(codes, count, packed);
  for (int64_t i = 0; i < count; i += 8) {
    const int64_t here = count - i < 8 ? count - i : 8;
    uint64_t eight = 0;
    __builtin_memcpy(&eight, codes + i, here == 8 ? 8 : static_cast<size_t>(here));
    eight = joined<kBits>(eight);
    __builtin_memcpy(packed + i / 8 * kBits, &eight, here == 8 ? kBits : static_cast<size_t>((here * kBits + 7) / 8));
  }
}

template <int kBits>
HVD_SCALAR void unpack(const uint8_t* __restrict packed, int64_t count, uint8_t* __restrict codes) {
  if constexpr (kBits == 4) return unpack_nibbles(packed, count, codes);
  for (int64_t i = 0; i < count; i += 8) {
    const int64_t here = count - i < 8 ? count - i : 8;
    uint64_t eight = 0;
    __builtin_memcpy(&eight, packed + i / 8 * kBits, here == 8 ? kBits : static_cast<size_t>((here * kBits + 7) / 8));
    eight = parted<kBits>(eight);
    __builtin_memcpy(codes + i, &eight, here == 8 ? 8 : static_cast<size_t>(here));
  }
}

}  // namespace
}  // namespace hvd::HVD_SIMD_NAMESPACE
