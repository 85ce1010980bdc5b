// The loops that all formats with blocks share. Compiled once per instruction set, each in its own namespace, so include it in
// *_kernels.cc only. format_list.h describes the parameter `Format`. Runs are processed in strips of a few blocks.
#pragma once

#include "codec/format_list.h"
#include "codec/kernels.h"
#include "codec/random_bits.h"

#if defined(__F16C__) && defined(__AVX2__)
#include <immintrin.h>
#define HVD_BY_HALVES
#endif

namespace hvd::HVD_SIMD_NAMESPACE {
namespace {

// ---- unaligned scales and codes, and packed codes of less than a byte -----------------------------------------------

struct __attribute__((packed, may_alias)) UnalignedWord {
  uint32_t value;
};

HVD_SCALAR void put_float(float value, uint8_t* at) { reinterpret_cast<UnalignedWord*>(at)->value = bits_of(value); }
HVD_SCALAR float get_float(const uint8_t* at) { return float_of(reinterpret_cast<const UnalignedWord*>(at)->value); }

// A block's scale, with the format's number of bytes.
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

// Packs two codes of 4 bits into a byte, the even element's in the lower bits.
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

// Eight codes take kBits bytes. They are joined in pairs, then fours, then all eight.
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

// Packs codes of a byte each into a stream of kBits each, the first in the lowest bits. The last byte is padded with 0.
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

// ---- strips ---------------------------------------------------------------------------------------------------------

constexpr int64_t kStrip = 1024;  // elements; a multiple of every block size
// Blocks of at least a piece are processed piece by piece, with one factor for each piece. Smaller blocks share one loop over
// the strip, with a factor for each element, because separate loops cost more.
constexpr int64_t kPiece = 128;

// The addresses of the scales of a strip's blocks.
template <class Format, class Byte>
struct Scales {
  Byte* first;
  int shift;  // element index >> shift is the block index: block sizes are powers of two

  Scales(Byte* run, int64_t first_element, int64_t block)
      : first(run + first_element / block * Format::kScaleBytes), shift(__builtin_ctzll(static_cast<uint64_t>(block))) {}
  HVD_SCALAR Byte* operator[](int64_t i) const { return first + (i >> shift) * Format::kScaleBytes; }
};

// Format::inverse and Format::factor of the scale at an address.
template <class Format>
HVD_SCALAR float inverse_at(const uint8_t* scale) {
  return Format::inverse(get_scale<Format>(scale));
}
template <class Format>
HVD_SCALAR float factor_at(const uint8_t* scale) {
  return Format::factor(get_scale<Format>(scale));
}

// One factor for all elements of a loop.
struct Factor {
  float value;
  HVD_SCALAR float operator[](int64_t) const { return value; }
  template <class Vector>
  HVD_SCALAR Vector at(int64_t) const {
    return value - Vector{};
  }  // the same in all elements
};

// One factor for each element.
struct FactorOfEach {
  const float* values;
  HVD_SCALAR float operator[](int64_t i) const { return values[i]; }
  template <class Vector>
  HVD_SCALAR Vector at(int64_t i) const {
    return *reinterpret_cast<const Vector*>(values + i);
  }
};

// Stores factor(i) for each element from `begin` to `end` of a strip; `begin` starts a block or a piece.
template <class FactorAt>
HVD_SCALAR void spread(int64_t begin, int64_t end, float* __restrict factors, FactorAt factor) {
  constexpr int64_t kTogether = kSmallestBlock;
  int64_t i = begin;
  for (; i + kTogether <= end; i += kTogether) {
    const float value = factor(i);
    for (int64_t j = 0; j < kTogether; ++j) factors[i + j] = value;
  }
  if (i == end) return;
  const float value = factor(i);
  for (; i < end; ++i) factors[i] = value;
}

// ---- elements and random numbers ------------------------------------------------------------------------------------

// Element i times the prescale factor. Without kScaled the factor is one, and is not multiplied.
template <bool kScaled>
struct Scaled {
  const float* x;
  float prescale;

  HVD_SCALAR float operator[](int64_t i) const { return kScaled ? x[i] * prescale : x[i]; }
  HVD_SCALAR Scaled from(int64_t i) const { return {x + i, prescale}; }
};

// The random numbers of a run. Keeps the stream's state while the upper half of the index stays the same.
class Numbers {
 public:
  Numbers(uint64_t seed, Draw draw)
      : seed_(seed), key_(draw.key), first_(static_cast<uint64_t>(draw.first)), high_(~0u), stream_{} {}

  // Stores `count` numbers from number first + begin on.
  [[gnu::noinline]] void fill(int64_t begin, int64_t count, uint32_t* __restrict numbers) {
    while (count > 0) {
      const uint64_t n = first_ + static_cast<uint64_t>(begin);
      const uint32_t high = static_cast<uint32_t>(n >> 32);
      const uint32_t low = static_cast<uint32_t>(n);
      if (high != high_) stream_ = random_stream(seed_, key_, high_ = high);
      const int64_t left = (int64_t{1} << 32) - low;
      const int64_t length = count < left ? count : left;
      const RandomStream stream = stream_;
      for (int64_t i = 0; i < length; ++i) numbers[i] = random_bits(stream, low + static_cast<uint32_t>(i));
      begin += length;
      count -= length;
      numbers += length;
    }
  }

 private:
  const uint64_t seed_;
  const uint64_t key_;
  const uint64_t first_;
  uint32_t high_;
  RandomStream stream_;
};

// As integers, magnitudes have the same order as the floats, so the maximum needs no float comparison.
template <bool kSkipsNonFinite, class Elements>
HVD_SCALAR uint32_t largest_magnitude(Elements x, int64_t count) {
  int32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto magnitude = static_cast<int32_t>(kSkipsNonFinite ? finite_magnitude(x[i]) : bits_of(x[i]) & ~kSignBit);
    largest = magnitude > largest ? magnitude : largest;
  }
  return static_cast<uint32_t>(largest);
}

// ---- encoding -------------------------------------------------------------------------------------------------------

template <class Format, bool kStochastic, class Elements, class Factors>
HVD_SCALAR void encode_elements(Elements x, int64_t count, Factors inverse, const uint32_t* random, uint8_t* codes) {
  for (int64_t i = 0; i < count; ++i) {
    const float quotient = x[i] * inverse[i];
    codes[i] = kStochastic ? Format::stochastic(quotient, random[i]) : Format::nearest(quotient);
  }
}

// Functions of their own, so that callers share their code. kBlock 0 is a block size known at run time; a constant lets the
// compiler unroll, and requires whole blocks.
template <class Format, int64_t kBlock, class Elements>
[[gnu::noinline]] void put_scales(Elements x, int64_t count, int64_t block_size, Scales<Format, uint8_t> scales) {
  constexpr int64_t kAhead = 2048;  // elements; the hardware's prefetcher alone was 15 % slower
  const int64_t block = kBlock != 0 ? kBlock : block_size;
  for (int64_t i = 0; i < count; i += block) {
    const int64_t length = kBlock != 0 || count - i > block ? block : count - i;
    for (int64_t j = 0; j < length; j += 16) __builtin_prefetch(x.x + i + j + kAhead);
    put_scale<Format>(Format::scale(largest_magnitude<Format::kSkipsNonFinite>(x.from(i), length)), scales[i]);
  }
}

template <class Format, class Elements>
HVD_SCALAR void put_scales_of(Elements x, int64_t count, int64_t block, Scales<Format, uint8_t> scales) {
  if (block == 128 && count % 128 == 0) {
    put_scales<Format, 128>(x, count, block, scales);
  } else if (block == 32 && count % 32 == 0) {
    put_scales<Format, 32>(x, count, block, scales);
  } else {
    put_scales<Format, 0>(x, count, block, scales);
  }
}

template <class Format, bool kStochastic, class Elements>
[[gnu::noinline]] void put_codes(Elements x, int64_t count, int64_t block, Scales<Format, uint8_t> scales,
                                 const uint32_t* __restrict random, uint8_t* __restrict codes) {
  int64_t done = 0;
  if (block >= kPiece) {
    for (; done + kPiece <= count; done += kPiece) {
      const Factor inverse{inverse_at<Format>(scales[done])};
      encode_elements<Format, kStochastic>(x.from(done), kPiece, inverse, kStochastic ? random + done : random, codes + done);
    }
  }
  if (done == count) return;
  alignas(64) float inverse[kStrip];
  spread(done, count, inverse, [=](int64_t i) { return inverse_at<Format>(scales[i]); });
  encode_elements<Format, kStochastic>(x.from(done), count - done, FactorOfEach{inverse + done},
                                       kStochastic ? random + done : random, codes + done);
}

// All scales of a strip come before its codes: no block waits for its own maximum, and the elements are still in the L1 cache
// when they are read again.
template <class Format, bool kStochastic>
int64_t encode(const float* x, int64_t count, const BlockShape& shape, float prescale, Draw draw, uint8_t* __restrict run) {
  constexpr bool kPacked = Format::kBits != 8;
  const int64_t block = shape.block;
  uint8_t* codes = run + (count + block - 1) / block * Format::kScaleBytes;
  [[maybe_unused]] Numbers numbers(shape.seed, draw);
  alignas(64) uint32_t random[kStochastic ? kStrip : 1];
  alignas(64) [[maybe_unused]] uint8_t unpacked[kPacked ? kStrip : 1];
  for (int64_t first = 0; first < count; first += kStrip) {
    const int64_t here = count - first < kStrip ? count - first : kStrip;
    uint8_t* out = kPacked ? unpacked : codes + first;
    const Scales<Format, uint8_t> scales(run, first, block);
    const Scaled<true> scaled{x + first, prescale};
    const Scaled<false> plain{x + first, 1.0f};
    if (prescale == 1.0f) {
      put_scales_of<Format>(plain, here, block, scales);
    } else {
      put_scales_of<Format>(scaled, here, block, scales);
    }
    if constexpr (kStochastic) {  // the multiplication by one is cheap beside the random numbers
      numbers.fill(first, here, random);
      put_codes<Format, true>(scaled, here, block, scales, random, out);
    } else if (prescale == 1.0f) {
      put_codes<Format, false>(plain, here, block, scales, random, out);
    } else {
      put_codes<Format, false>(scaled, here, block, scales, random, out);
    }
    if constexpr (kPacked) pack<Format::kBits>(unpacked, here, codes + first * Format::kBits / 8);
  }
  return 0;  // scales are chosen so that nothing saturates
}

// ---- 8-bit minifloats through IEEE halves ---------------------------------------------------------------------------

#ifdef HVD_BY_HALVES
// Processors with F16C convert halves to float32 in hardware. A code, shifted left, is the half of its value times a power of
// two. Gives the same bits as Minifloat8::value() in half the time.

#ifdef __AVX512VL__
constexpr int64_t kHalves = 16;  // per vector
#else
constexpr int64_t kHalves = 8;
#endif

// Vectors without alignment.
using Codes = int8_t __attribute__((vector_size(kHalves), aligned(1), may_alias));
using Halves = int16_t __attribute__((vector_size(kHalves * 2)));
using Floats = float __attribute__((vector_size(kHalves * 4), aligned(4), may_alias));

HVD_SCALAR Floats floats_of(Halves halves) {
#ifdef __AVX512VL__
  return _mm512_maskz_cvtph_ps(0xFFFF, reinterpret_cast<__m256i>(halves));  // GCC 12 warns inside its unmasked intrinsic
#else
  return _mm256_cvtph_ps(reinterpret_cast<__m128i>(halves));
#endif
}

// Values of kHalves codes.
template <class Minifloat>
HVD_SCALAR Floats values_of(const uint8_t* codes) {
  constexpr int kUp = 10 - Minifloat::kMantissaBits;  // a half's mantissa has 10 bits
  constexpr auto kMagnitude = static_cast<int16_t>(0x7F << kUp);
  constexpr auto kToNaN = static_cast<int16_t>(kMagnitude ^ 0x7E00);
  const Halves signs = __builtin_convertvector(*reinterpret_cast<const Codes*>(codes), Halves);  // in bits 7 to 15
  Halves halves = (signs << kUp) & static_cast<int16_t>(kMagnitude | 0x8000);
  if (!Minifloat::kHasInfinity) halves ^= ((halves & kMagnitude) == kMagnitude) & kToNaN;
  constexpr float kUnbias = static_cast<float>(1 << (15 - Minifloat::kBias));  // a half's bias is 15
  return floats_of(halves) * kUnbias;
}

template <class Format>
constexpr bool kByHalves = requires { typename Format::Minifloat; };

// Values of kHalves codes from the i-th on.
template <class Format, class Factors>
HVD_SCALAR Floats values_at(const uint8_t* codes, Factors scale, int64_t i) {
  return values_of<typename Format::Minifloat>(codes + i) * scale.template at<Floats>(i);
}
#endif

// ---- decoding -------------------------------------------------------------------------------------------------------

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

// ---- the scaled sum of two ranks' blocks, in one pass over memory -----------------------------------------------------

// Smaller blocks are decoded one rank at a time: a loop for each block costs more.
constexpr int64_t kLargeBlock = 64;

// The codes of a block or piece, and their factor.
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

// For formats and blocks that do not gain from one pass.
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

// ---- the table of a format ------------------------------------------------------------------------------------------

template <class Format>
constexpr RoundingKernels kernels_of() {
  return {{{encode<Format, false>, decode<Format, false>, decode<Format, true>, decode_two<Format>},
           {encode<Format, true>, decode<Format, false>, decode<Format, true>, decode_two<Format>}}};
}

}  // namespace
}  // namespace hvd::HVD_SIMD_NAMESPACE
