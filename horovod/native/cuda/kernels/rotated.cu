// int4 with rotation: full blocks have the codes of their Hadamard transform (codec/rotation.h), a tail those of plain int4.
#include "codec/rotation.h"
#include "cuda/kernels/codec_kernels.cuh"
#include "cuda/kernels/plain_blocks.cuh"

namespace hvd {

// Transforms every block of a tile in place. At distance d each pair a = v[i], b = v[i + d], with bit d of i clear, becomes a +
// b and a - b, for d from half a block down to 1. These are the additions of rotation_stage(), which also moves elements in
// each stage; after all stages both have the same order.
HVD_DEVICE void transform(const Blocks& blocks, Elements& v) {
  HVD_UNROLLED
  for (int width = kChunks / 2; width > 0; width /= 2) {
    if (kChunk * width >= blocks.elements()) continue;
    HVD_UNROLLED
    for (int c = 0; c < kChunks; ++c) {
      if ((c & width) != 0) continue;
      HVD_UNROLLED
      for (int j = 0; j < kLaneElements; ++j) {
        const float a = v[c][j], b = v[c + width][j];
        v[c][j] = a + b;
        v[c + width][j] = a - b;
      }
    }
  }
  HVD_UNROLLED
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    if (kLaneElements * distance >= blocks.elements()) continue;
    const uint32_t sign = (lane_number() & distance) != 0 ? kSignBit : 0;
    HVD_UNROLLED
    for (int c = 0; c < kChunks; ++c) {
      HVD_UNROLLED
      for (int j = 0; j < kLaneElements; ++j) {
        const float other = __shfl_xor_sync(kAllLanes, v[c][j], distance);
        v[c][j] = other + float_of(bits_of(v[c][j]) ^ sign);
      }
    }
  }
  HVD_UNROLLED
  for (int c = 0; c < kChunks; ++c) {
    const float sum[] = {v[c][0] + v[c][2], v[c][1] + v[c][3]};
    const float difference[] = {v[c][0] - v[c][2], v[c][1] - v[c][3]};
    v[c][0] = sum[0] + sum[1];
    v[c][1] = sum[0] - sum[1];
    v[c][2] = difference[0] + difference[1];
    v[c][3] = difference[0] - difference[1];
  }
}

// The signs of this lane's elements: bit 4 * chunk + element. Chunks at the same position in their blocks have equal signs.
HVD_DEVICE uint32_t signs_of(const Blocks& blocks) {
  uint32_t signs = 0;
  HVD_ROLLED
  for (int c = 0; c * kChunk < blocks.elements(); ++c) {
    HVD_UNROLLED
    for (int j = 0; j < kLaneElements; ++j) {
      const auto place = static_cast<uint64_t>(place_of(c, j) & (blocks.elements() - 1));
      signs |= rotation_sign(blocks.seed, place) >> (31 - kLaneElements * c - j);
    }
  }
  HVD_UNROLLED
  for (int known = 1; known < kChunks; known *= 2) {
    if (known * kChunk >= blocks.elements()) signs |= signs << (kLaneElements * known);
  }
  return signs;
}

// The root of each block's sum of squares, in the lane with the block's number. By definition squares are summed in 16 lanes,
// with element i in lane i % 16; here such a lane is the pair (lane % 4, element).
HVD_DEVICE float root_of_squares(const Blocks& blocks, const Elements& t) {
  const int group = min(blocks.elements(), kChunk) / kLaneElements;  // lanes that share a block within a chunk
  const int first = lane_number() & ~(group - 1);
  const int block_end = ((lane_number() + 1) << blocks.log) - 1;
  float sum[kLaneElements] = {}, own = 0;
  HVD_UNROLLED
  for (int c = 0; c < kChunks; ++c) {
    if ((c * kChunk & (blocks.elements() - 1)) == 0) {
      HVD_UNROLLED
      for (int j = 0; j < kLaneElements; ++j) sum[j] = 0;
    }
    HVD_ROLLED
    for (int step = 0; step < group; step += 4) {
      HVD_UNROLLED
      for (int j = 0; j < kLaneElements; ++j) {
        sum[j] += __shfl_sync(kAllLanes, t[c][j] * t[c][j], first + step + lane_number() % 4);
      }
    }
    if (((c + 1) * kChunk & (blocks.elements() - 1)) != 0) continue;
    float lanes[kLaneElements];
    HVD_UNROLLED
    for (int j = 0; j < kLaneElements; ++j) {
      lanes[j] = sum[j] + __shfl_xor_sync(kAllLanes, sum[j], 2);
      lanes[j] += __shfl_xor_sync(kAllLanes, lanes[j], 1);
    }
    const float all = (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
    const float there = __shfl_sync(kAllLanes, all, block_end % kChunk / kLaneElements);
    if (block_end / kChunk == c) own = there;
  }
  return sqrtf(own);
}

template <class Format>
struct RotatedBlocks {
  using Codes = hvd::Codes<1>;
  static constexpr int kBits = Format::kBits;
  static constexpr int kScaleBytes = Format::kScaleBytes;
  static constexpr bool kRotates = true;
  static constexpr bool kLloyd = Format::kLloyd;

  struct Factors {
    uint32_t scale;
    float inverse;  // 0 for a block with a non-finite element
  };

  HVD_DEVICE static bool is_full(const Blocks& blocks, const Tile& tile, int block) {
    return (block + 1) << blocks.log <= tile.count;
  }

  HVD_DEVICE static void encode(const Elements& x, const Blocks& blocks, const Tile& tile, Codes& codes) {
    uint32_t largest[kChunks];
    find_magnitudes(x, largest);
    find_block_maxima(blocks, largest);
    const uint32_t own_largest = of_own_block(blocks, largest);
    const RotationScale rotation = rotation_scale(own_largest, blocks.elements());
    const uint32_t signs = signs_of(blocks);
    Elements y;
    HVD_UNROLLED
    for (int c = 0; c < kChunks; ++c) {
      const float before = from_block(blocks, rotation.before, c);
      HVD_UNROLLED
      for (int j = 0; j < kLaneElements; ++j) {
        y[c][j] = float_of(bits_of(x[c][j]) ^ (signs >> (kLaneElements * c + j)) << 31) * before;
      }
    }
    const float root = kLloyd ? root_of_squares(blocks, y) : 0.0f;
    transform(blocks, y);
    find_magnitudes(y, largest);
    find_block_maxima(blocks, largest);
    const float step = kLloyd ? root : float_of(of_own_block(blocks, largest)) / 7.0f;
    const Factors own = factors_of(own_largest, is_full(blocks, tile, lane_number()), step, rotation);
    codes.scale = own.scale;
    HVD_UNROLLED
    for (int c = 0; c < kChunks; ++c) {
      if (is_full(blocks, tile, blocks.number_of(c))) continue;
      HVD_UNROLLED
      for (int j = 0; j < kLaneElements; ++j) y[c][j] = x[c][j];
    }
    const auto code = [&](int c, float value, float inverse, uint32_t random) -> uint32_t {
      const float quotient = value * inverse;
      const bool has_levels = kLloyd && is_full(blocks, tile, blocks.number_of(c));
      if (inverse == 0.0f) return 0u;
      if (has_levels) return lloyd_code(quotient);
      return blocks.is_stochastic ? Format::stochastic(quotient, random) : Format::nearest(quotient);
    };
    encode_by_definition<kBits>(y, blocks, tile, own.inverse, code, codes);
  }

  HVD_DEVICE static Factors factors_of(uint32_t largest, bool is_full, float step, const RotationScale& rotation) {
    if (!is_full || largest >= kInfinity) {
      const uint32_t scale = Format::scale(largest);
      return {scale, Format::inverse(scale)};
    }
    const float scale = rotated_block_scale(step, rotation);
    return {bits_of(largest == 0 ? 0.0f : scale), 1.0f / (scale * rotation.back)};
  }

  template <class Use>
  HVD_DEVICE static void decode(const Codes& codes, const Blocks& blocks, const Tile& tile, Use use) {
    const uint32_t signs = signs_of(blocks);
    Elements y;
    HVD_UNROLLED
    for (int c = 0; c < kChunks; ++c) {
      HVD_UNROLLED
      for (int j = 0; j < kLaneElements; ++j) y[c][j] = level(code_of(codes, c, j));
    }
    transform(blocks, y);
    HVD_UNROLLED
    for (int c = 0; c < kChunks; ++c) {
      const float scale = from_block(blocks, float_of(codes.scale), c);
      const bool is_rotated = is_full(blocks, tile, blocks.number_of(c));
      HVD_UNROLLED
      for (int j = 0; j < kLaneElements; ++j) {
        const uint32_t sign = (signs >> (kLaneElements * c + j)) << 31;
        const float rotated = float_of(bits_of(clamped(times_keeping_nan(scale, y[c][j]))) ^ sign);
        use(c, j, is_rotated ? rotated : Format::value(code_of(codes, c, j), scale));
      }
    }
  }

  HVD_DEVICE static uint8_t code_of(const Codes& codes, int chunk, int element) {
    return static_cast<uint8_t>(codes.word[chunk][0] >> (kBits * element) & 15u);
  }
  HVD_DEVICE static float level(uint8_t code) { return kLloyd ? lloyd_value(code) : int4_value(code); }
};

FormatKernels rotated_kernels(int row) {
#define HVD_KERNELS(name, format, variant, Trait) kernels_of<RotatedBlocks<Trait>>(),
  const FormatKernels kernels[] = {HVD_FOR_EACH_ROTATED_FORMAT(HVD_KERNELS)};
#undef HVD_KERNELS
  return kernels[row];
}

}  // namespace hvd
