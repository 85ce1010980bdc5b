// Blocks whose codes are elements times a factor, rounded.
//
// Values are coded by the definitions that codec/format_list.h lists where they are special or rounded stochastically.
// The bulk, finite numbers rounded to nearest, has shorter forms here, because a GPU has fewer integer operations to spare
// than memory delivers elements: at 4.8 TB/s a multiprocessor gets 14 of them for each element that it encodes to 8 bits.
#pragma once

#include "codec/format_list.h"
#include "cuda/kernels/blocks.cuh"
#include "cuda/kernels/elements.cuh"

namespace hvd {

// The lowest bytes of four words.
HVD_DEVICE uint32_t lowest_bytes(const uint32_t (&word)[kLaneElements]) {
  const uint32_t low = __byte_perm(word[0], word[1], 0x0040);
  const uint32_t high = __byte_perm(word[2], word[3], 0x0040);
  return __byte_perm(low, high, 0x5410);
}
HVD_DEVICE uint32_t highest_bytes(const uint32_t (&word)[kLaneElements]) {
  const uint32_t low = __byte_perm(word[0], word[1], 0x0073);
  const uint32_t high = __byte_perm(word[2], word[3], 0x0073);
  return __byte_perm(low, high, 0x5410);
}

// The shorter forms of a format, for four elements that a lane has side by side, or their codes, the first in the lowest bits.
// A format without any is coded by its definition alone.
template <class Format>
struct BulkForms {
  HVD_DEVICE static uint32_t codes_of_finite(const float (&q)[kLaneElements]) {
    uint32_t codes = 0;
    HVD_UNROLLED
    for (int j = 0; j < kLaneElements; ++j) codes |= static_cast<uint32_t>(Format::nearest(q[j])) << (Format::kBits * j);
    return codes;
  }

  // Whether values_of_finite() must not be believed.
  HVD_DEVICE static bool has_special(uint32_t, float) { return true; }
  HVD_DEVICE static void values_of_finite(uint32_t, float, float (&)[kLaneElements]) {}
};

template <class Minifloat>
struct BulkForms<Bit8<Minifloat>> {
  // With e the exponent, no less than that of the smallest normal, |q| is rounded by adding 2^(e + 23 - mantissa bits),
  // whose unit is what the format's is there. The sum's lower bits then count these units, subnormal or not; the leading
  // one carries into the exponent that is added to them. What lies above the lowest byte is left to be cut off.
  HVD_DEVICE static uint32_t codes_of_finite(const float (&q)[kLaneElements]) {
    constexpr int kDropped = 23 - Minifloat::kMantissaBits;
    constexpr uint32_t kLeast = static_cast<uint32_t>(127 - Minifloat::kBias + 1) << 23;
    uint32_t codes[kLaneElements], bits[kLaneElements];
    HVD_UNROLLED
    for (int j = 0; j < kLaneElements; ++j) {
      bits[j] = bits_of(q[j]);
      const uint32_t exponent = max(bits[j] & kInfinity, kLeast);
      const float sum = float_of(bits[j] & ~kSignBit) + float_of(exponent + (static_cast<uint32_t>(kDropped) << 23));
      codes[j] = bits_of(sum) + (exponent >> kDropped) - (kLeast >> kDropped);
    }
    return lowest_bytes(codes) | (highest_bytes(bits) & 0x80808080u);
  }

  HVD_DEVICE static bool has_special(uint32_t word, float) {
    constexpr uint32_t kFirst = Minifloat::kHasInfinity ? 0x7C : 0x7F;
    return (((word & 0x7F7F7F7Fu) + (0x80 - kFirst) * 0x01010101u) & 0x80808080u) != 0;
  }
  // Sign and bits of the code, put where a float has them, are the value times 2^(bias - 127), subnormal or not.
  HVD_DEVICE static void values_of_finite(uint32_t word, float factor, float (&y)[kLaneElements]) {
    constexpr uint32_t kMask = kSignBit | 0x7Fu << (23 - Minifloat::kMantissaBits);
    const float rebias = float_of(static_cast<uint32_t>(127 + 127 - Minifloat::kBias) << 23);
    HVD_UNROLLED
    for (int j = 0; j < kLaneElements; ++j) {
      const auto top = static_cast<int32_t>(word << (24 - 8 * j));
      const uint32_t bits = static_cast<uint32_t>(top >> (Minifloat::kMantissaBits + 1)) & kMask;
      y[j] = float_of(bits) * rebias * factor;
    }
  }
};

template <>
struct BulkForms<Int8Blocks> {
  // Int8::nearest, whose lowest byte needs no subtraction.
  HVD_DEVICE static uint32_t codes_of_finite(const float (&q)[kLaneElements]) {
    uint32_t codes[kLaneElements];
    HVD_UNROLLED
    for (int j = 0; j < kLaneElements; ++j) codes[j] = bits_of(q[j] + 0x1.8p23f);
    return lowest_bytes(codes);
  }

  HVD_DEVICE static bool has_special(uint32_t word, float) {
    const uint32_t flipped = word ^ (kInt8NaN * 0x01010101u);
    return ((flipped - 0x01010101u) & ~flipped & 0x80808080u) != 0;  // whether a byte is 0
  }
  // The lower bits of 2^23 + n are n.
  HVD_DEVICE static void values_of_finite(uint32_t word, float factor, float (&y)[kLaneElements]) {
    const uint32_t raised = word ^ 0x80808080u;  // code + 128
    HVD_UNROLLED
    for (int j = 0; j < kLaneElements; ++j) {
      const uint32_t bits = __byte_perm(raised, bits_of(0x1p23f), 0x7650u + static_cast<uint32_t>(j));
      y[j] = (float_of(bits) - (0x1p23f + 128.0f)) * factor;
    }
  }
};

template <>
struct BulkForms<Int4Blocks> {
  HVD_DEVICE static uint32_t codes_of_finite(const float (&q)[kLaneElements]) {
    uint32_t codes = 0;
    HVD_UNROLLED
    for (int j = 0; j < kLaneElements; ++j) codes |= (bits_of(q[j] + 0x1.8p23f) & 15u) << (4 * j);
    return codes;
  }

  HVD_DEVICE static bool has_special(uint32_t, float factor) { return factor != factor; }
  HVD_DEVICE static void values_of_finite(uint32_t word, float factor, float (&y)[kLaneElements]) {
    const uint32_t raised = word ^ 0x8888u;  // code + 8
    HVD_UNROLLED
    for (int j = 0; j < kLaneElements; ++j) {
      y[j] = (float_of((raised >> (4 * j) & 15u) | bits_of(0x1p23f)) - (0x1p23f + 8.0f)) * factor;
    }
  }
};

// Codes of elements one by one, code(chunk, element, its block's factor, random number), in a loop.
template <int kBits, class Code>
HVD_DEVICE void encode_by_definition(const Elements& x, const Blocks& blocks, const Tile& tile, float factor_of_own, Code code,
                                     Codes<1>& codes) {
  const Numbers numbers(blocks, tile);
  put_in_scratch(x);
  uint32_t* words = scratch();
  HVD_ROLLED
  for (int c = 0; c < kChunks; ++c) {
    const float factor = from_block(blocks, factor_of_own, c);
    const Quad<float> quad = reinterpret_cast<const Quad<float>*>(words)[c * kLanes + lane_number()];
    uint32_t word = 0;
    HVD_UNROLLED
    for (int j = 0; j < kLaneElements; ++j) {
      const uint32_t random = blocks.is_stochastic ? numbers.at(place_of(c, j)) : 0;
      word |= static_cast<uint32_t>(code(c, quad.element[j], factor, random)) << (kBits * j);
    }
    words[place_of(c, 0)] = word;
  }
  HVD_UNROLLED
  for (int c = 0; c < kChunks; ++c) codes.word[c][0] = words[place_of(c, 0)];  // this lane's own
  __syncwarp();
}

template <class Format>
struct PlainBlocks : Format {
  static constexpr bool kRotates = false;
  using Codes = hvd::Codes<1>;

  HVD_DEVICE static void encode(const Elements& x, const Blocks& blocks, const Tile& tile, Codes& codes) {
    uint32_t largest[kChunks], all = 0;
    find_magnitudes(x, largest);
    HVD_UNROLLED
    for (int c = 0; c < kChunks; ++c) all = max(all, largest[c]);
    const bool has_special = __any_sync(kAllLanes, all >= kInfinity) != 0;
    if (has_special && Format::kSkipsNonFinite) {
      HVD_UNROLLED
      for (int c = 0; c < kChunks; ++c) {
        largest[c] = 0;
        HVD_UNROLLED
        for (int j = 0; j < kLaneElements; ++j) largest[c] = max(largest[c], finite_magnitude(x[c][j]));
      }
    }
    find_block_maxima(blocks, largest);
    codes.scale = Format::scale(of_own_block(blocks, largest));
    const float inverse = Format::inverse(codes.scale);
    if (blocks.is_stochastic || has_special) {
      const auto code = [&](int, float value, float factor, uint32_t random) {
        const float quotient = times_keeping_nan(value, factor);
        return blocks.is_stochastic ? Format::stochastic(quotient, random) : Format::nearest(quotient);
      };
      encode_by_definition<Format::kBits>(x, blocks, tile, inverse, code, codes);
    } else {
      encode_finite(x, blocks, inverse, codes);
    }
  }

  HVD_DEVICE static void encode_finite(const Elements& x, const Blocks& blocks, float inverse, Codes& codes) {
    HVD_UNROLLED
    for (int c = 0; c < kChunks; ++c) {
      const float factor = from_block(blocks, inverse, c);
      const float quotients[] = {x[c][0] * factor, x[c][1] * factor, x[c][2] * factor, x[c][3] * factor};
      codes.word[c][0] = BulkForms<Format>::codes_of_finite(quotients);
    }
  }

  // Calls use(chunk, element, value).
  template <class Use>
  HVD_DEVICE static void decode(const Codes& codes, const Blocks& blocks, const Tile&, Use use) {
    const float own_factor = Format::factor(codes.scale);
    HVD_UNROLLED
    for (int c = 0; c < kChunks; ++c) {
      const float factor = from_block(blocks, own_factor, c);
      const uint32_t word = codes.word[c][0];
      float y[kLaneElements];
      BulkForms<Format>::values_of_finite(word, factor, y);
      if (BulkForms<Format>::has_special(word, factor)) {
        HVD_UNROLLED
        for (int j = 0; j < kLaneElements; ++j) {
          y[j] = Format::value(static_cast<uint8_t>(word >> (Format::kBits * j) & ((1u << Format::kBits) - 1)), factor);
        }
      }
      HVD_UNROLLED
      for (int j = 0; j < kLaneElements; ++j) use(c, j, y[j]);
    }
  }
};

}  // namespace hvd
