// Elements as 16-bit floats, without blocks. Halves have a short form for the bulk, like the formats of plain_blocks.cuh.
#include "codec/minifloat.h"
#include "cuda/kernels/blocks.cuh"
#include "cuda/kernels/codec_kernels.cuh"
#include "cuda/kernels/elements.cuh"

namespace hvd {

template <class Format>
struct SixteenBitCodes : Format {
  struct Codes : hvd::Codes<2> {
    int saturated = 0;  // of this lane's elements
  };
  static constexpr bool kRotates = false;

  HVD_DEVICE static void encode(const Elements& x, const Blocks&, const Tile&, Codes& codes) {
    HVD_UNROLLED
    for (int c = 0; c < kChunks; ++c) {
      uint32_t code[kLaneElements];
      uint32_t largest = 0;
      HVD_UNROLLED
      for (int j = 0; j < kLaneElements; ++j) {
        largest = max(largest, bits_of(x[c][j]) & ~kSignBit);
        code[j] = Format::kIsHalf ? half_of_small(x[c][j]) : Format::code(x[c][j]);
      }
      if (Format::kIsHalf && largest > bits_of(65504.0f)) {
        HVD_UNROLLED
        for (int j = 0; j < kLaneElements; ++j) {
          code[j] = Format::code(x[c][j]);
          if (Format::kSaturates) codes.saturated += half_saturates(x[c][j]) ? 1 : 0;
        }
      }
      codes.word[c][0] = __byte_perm(code[0], code[1], 0x5410);
      codes.word[c][1] = __byte_perm(code[2], code[3], 0x5410);
    }
  }

  // Returns the half of a number up to 65504 in the lower 16 bits. See codes_of_finite() of bit8.
  HVD_DEVICE static uint32_t half_of_small(float x) {
    constexpr uint32_t kLeast = 113u << 23;
    const uint32_t exponent = max(bits_of(x) & kInfinity, kLeast);
    const float sum = float_of(bits_of(x) & ~kSignBit) + float_of(exponent + (13u << 23));
    return (bits_of(sum) + (exponent >> 13) - (kLeast >> 13)) | (bits_of(x) >> 16 & 0x8000u);
  }

  template <class Use>
  HVD_DEVICE static void decode(const Codes& codes, const Blocks&, const Tile&, Use use) {
    HVD_UNROLLED
    for (int c = 0; c < kChunks; ++c) {
      float y[kLaneElements];
      HVD_UNROLLED
      for (int j = 0; j < kLaneElements; ++j) {
        // The half's sign and bits, moved to their places in a float, are its value times 2^-112, subnormal or not.
        const auto top = static_cast<int32_t>(codes.word[c][j / 2] << (16 - 16 * (j % 2)));
        y[j] = Format::kIsHalf ? float_of(static_cast<uint32_t>(top >> 3) & 0x8FFFE000u) * 0x1p112f : value_of(codes, c, j);
      }
      if (Format::kIsHalf && (has_special(codes.word[c][0]) || has_special(codes.word[c][1]))) {
        HVD_UNROLLED
        for (int j = 0; j < kLaneElements; ++j) y[j] = value_of(codes, c, j);
      }
      HVD_UNROLLED
      for (int j = 0; j < kLaneElements; ++j) use(c, j, y[j]);
    }
  }

  HVD_DEVICE static float value_of(const Codes& codes, int chunk, int element) {
    return Format::value(static_cast<uint16_t>(codes.word[chunk][element / 2] >> (16 * (element % 2))));
  }
  HVD_DEVICE static bool has_special(uint32_t two_halves) {
    return (((two_halves & 0x7FFF7FFFu) + 0x04000400u) & 0x80008000u) != 0;
  }
};

FormatKernels sixteen_bit_kernels(int row) {
#define HVD_KERNELS(name, format, variant, Trait) kernels_of<SixteenBitCodes<Trait>>(),
  const FormatKernels kernels[] = {HVD_FOR_EACH_SIXTEEN_BIT_FORMAT(HVD_KERNELS)};
#undef HVD_KERNELS
  return kernels[row];
}

}  // namespace hvd
