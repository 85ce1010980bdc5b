#include "codec/codec.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/error.h"
#include "base/simd.h"
#include "base/text.h"

namespace hvd {

// ---- kernels --------------------------------------------------------------------------------------------------------

#define HVD_DECLARE_LEVEL(level)                                        \
  namespace level {                                                     \
  extern const RoundingKernels sixteen_bit_kernels[kSixteenBitFormats]; \
  extern const RoundingKernels plain_kernels[kPlainFormats];            \
  extern const RoundingKernels rotated_kernels[kRotatedFormats];        \
  extern const ConvertKernels convert_kernels;                          \
  }
HVD_DECLARE_LEVEL(scalar)
HVD_DECLARE_LEVEL(baseline)
HVD_DECLARE_LEVEL(x86_64_v3)
HVD_DECLARE_LEVEL(x86_64_v4)
#undef HVD_DECLARE_LEVEL

const CodecKernels& codec_kernels(SimdLevel level) {
#define HVD_TABLE(level)                                                                              \
  {                                                                                                   \
    level::sixteen_bit_kernels, level::plain_kernels, level::rotated_kernels, &level::convert_kernels \
  }
  static constexpr CodecKernels kScalar = HVD_TABLE(scalar);
  static constexpr CodecKernels kBaseline = HVD_TABLE(baseline);
#if defined(HVD_HAVE_X86_64_V3)
  static constexpr CodecKernels kV3 = HVD_TABLE(x86_64_v3);
  if (level == SimdLevel::kX86_64_V3) return kV3;
#endif
#if defined(HVD_HAVE_X86_64_V4)
  static constexpr CodecKernels kV4 = HVD_TABLE(x86_64_v4);
  if (level == SimdLevel::kX86_64_V4) return kV4;
#endif
#undef HVD_TABLE
  return level == SimdLevel::kScalar ? kScalar : kBaseline;
}

const RunKernels& CodecKernels::of(Coding coding, bool stochastic) const {
  int row = static_cast<int>(coding) - 1;
  if (row < kSixteenBitFormats) return sixteen_bit[row].of[stochastic];
  row -= kSixteenBitFormats;
  return (row < kPlainFormats ? plain[row] : rotated[row - kPlainFormats]).of[stochastic];
}

namespace {

// ---- rows -----------------------------------------------------------------------------------------------------------

template <class Trait>
constexpr FormatRow row(Coding coding, std::string_view format, std::string_view variant) {
  constexpr bool kRotated = requires { Trait::kLloyd; };
  bool lloyd = false;
  if constexpr (kRotated) lloyd = Trait::kLloyd;
  return {coding, format, variant, Trait::kBits, Trait::kScaleBytes, kRotated, lloyd};
}

#define HVD_ROW(name, format, variant, Trait) row<Trait>(Coding::name, format, variant),
constexpr FormatRow kRows[] = {HVD_FOR_EACH_FORMAT(HVD_ROW)};
#undef HVD_ROW

// ---- runs -----------------------------------------------------------------------------------------------------------

// The sign of a rotation for each element of a block.
std::vector<uint32_t> signs_of(const FormatRow& row, const CodecOptions& options) {
  std::vector<uint32_t> signs(row.rotated ? static_cast<size_t>(options.block_size) : 0);
  for (size_t i = 0; i < signs.size(); ++i) signs[i] = rotation_sign(options.seed, i);
  return signs;
}

// The codec of every format: first all scales, then all codes. Formats differ only in their rows and loops.
class RunCodec final : public Codec {
 public:
  RunCodec(const FormatRow& row, const CodecOptions& options, const std::string& name, SimdLevel level)
      : row_(row),
        name_(name),
        level_(level),
        stochastic_(options.rounding == "stochastic"),
        kernels_(codec_kernels(level).of(row.coding, stochastic_)),
        signs_(signs_of(row, options)),
        shape_{options.block_size, options.seed, signs_.data()} {}

  const std::string& name() const override { return name_; }
  SimdLevel level() const override { return level_; }
  int64_t block() const override { return shape_.block; }
  bool is_stochastic() const override { return stochastic_; }
  int64_t encoded_bytes(int64_t count) const override {
    const int64_t blocks = (count + shape_.block - 1) / shape_.block;
    return blocks * row_.scale_bytes + (count * row_.bits + 7) / 8;
  }

  int64_t encode(const float* source, int64_t count, float prescale, Draw draw, uint8_t* run) const override {
    return kernels_.encode(source, count, shape_, prescale, draw, run);
  }
  void decode(const uint8_t* run, int64_t count, float* destination) const override {
    kernels_.decode(run, count, shape_, destination);
  }
  void decode_add(const uint8_t* run, int64_t count, float* accumulator) const override {
    kernels_.decode_add(run, count, shape_, accumulator);
  }
  void decode_two(const TwoRuns& runs, int64_t count, float factor, float* destination) const override {
    kernels_.decode_two(runs, count, shape_, factor, destination);
  }

 private:
  const FormatRow& row_;
  const std::string name_;
  const SimdLevel level_;
  const bool stochastic_;
  const RunKernels& kernels_;
  const std::vector<uint32_t> signs_;
  const BlockShape shape_;
};

// ---- names and options ----------------------------------------------------------------------------------------------

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (c == separator) {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

[[noreturn]] void refuse(Said said, std::vector<Fact> about) { throw InvalidArgument(said, {.others = std::move(about)}); }

// The word, or the first choice if it is empty.
std::string chosen(const std::string& word, const char* option, std::string_view choices) {
  const std::vector<std::string> known = split(choices, ' ');
  if (word.empty()) return known.front();
  if (std::find(known.begin(), known.end(), word) == known.end()) {
    refuse(Said::codec_option_unknown, {{"option", option}, {"value", word}, {"choices", joined(known, ", ")}});
  }
  return word;
}

// The common properties of all rows of a format.
struct Format {
  std::string name;
  bool has_blocks = false;  // otherwise it has neither scales nor stochastic rounding
  bool has_rotation = false;
  std::string variants = {};  // separated by spaces, the default first
};

Format format_named(const std::string& name) {
  Format format{name};
  std::vector<std::string> known;
  bool exists = false;
  for (const FormatRow& row : format_rows()) {
    if (std::find(known.begin(), known.end(), row.format) == known.end()) known.emplace_back(row.format);
    if (row.format != name) continue;
    exists = true;
    format.has_blocks = row.has_blocks();
    format.has_rotation |= row.rotated;
    if (!row.variant.empty()) format.variants += (format.variants.empty() ? "" : " ") + std::string(row.variant);
  }
  if (exists) return format;
  refuse(Said::codec_unknown, {{"value", name}, {"choices", joined(known, ", ")}});
}

int64_t chosen_block(const Format& format, int64_t block) {
  if (!format.has_blocks) {
    if (block == 0 || block == 1) return 1;
    refuse(Said::codec_has_no_blocks, {{"codec", format.name}, {"value", block}});
  }
  if (block == 0) return kDefaultBlock;
  if (block < kSmallestBlock || block > kLargestBlock || (block & (block - 1)) != 0) {
    refuse(Said::codec_block_wrong, {{"codec", format.name}, {"value", block}});
  }
  return block;
}

// Fills in the defaults, and throws for options that the format does not have.
CodecOptions settled(const Format& format, const CodecOptions& asked) {
  const std::string& name = format.name;
  CodecOptions options;
  options.block_size = chosen_block(format, asked.block_size);
  if (!asked.variant.empty() && format.variants.empty()) {
    refuse(Said::codec_has_no_variants, {{"codec", name}, {"value", asked.variant}});
  }
  options.variant = chosen(asked.variant, "variant", format.variants);
  options.rounding = chosen(asked.rounding, "rounding", "nearest stochastic");
  options.rotation = chosen(asked.rotation, "rotation", "none hadamard");
  options.levels = chosen(asked.levels, "levels", "uniform lloyd");
  options.seed = asked.seed;
  const bool stochastic = options.rounding == "stochastic";
  const bool rotated = options.rotation == "hadamard";
  const bool lloyd = options.levels == "lloyd";
  if (stochastic && !format.has_blocks) {
    refuse(Said::codec_not_stochastic, {{"codec", name}});
  }
  if (rotated && !format.has_rotation) refuse(Said::codec_has_no_rotation, {{"codec", name}});
  if (lloyd && !rotated) refuse(Said::lloyd_without_rotation, {{"codec", name}});
  if (lloyd && stochastic) refuse(Said::lloyd_stochastic, {{"codec", name}});
  if (options.seed != 0 && !stochastic && !rotated) {
    const std::string where = std::string("rounding 'stochastic'") + (format.has_rotation ? " or rotation 'hadamard'" : "");
    refuse(Said::seed_unused, {{"value", options.seed}, {"codec", name}, {"where", where}});
  }
  return options;
}

std::string name_of(const Format& format, const CodecOptions& options) {
  std::string name = format.name;
  if (!format.has_blocks) return name;
  name += "/" + std::to_string(options.block_size);
  if (options.variant != split(format.variants, ' ').front()) name += "/" + options.variant;
  if (options.rounding != "nearest") name += "/" + options.rounding;
  if (options.rotation != "none") name += "/" + options.rotation;
  if (options.levels != "uniform") name += "/" + options.levels;
  if (options.seed != 0) name += "/seed" + std::to_string(options.seed);
  return name;
}

template <typename T>
bool is_number(std::string_view text, T& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::span<const FormatRow> format_rows() { return kRows; }

const FormatRow& row_of(const NamedCodec& named) {
  const CodecOptions& options = named.options;
  const auto* const found = std::find_if(std::begin(kRows), std::end(kRows), [&](const FormatRow& each) {
    return each.format == named.format && each.variant == options.variant && each.rotated == (options.rotation == "hadamard") &&
           each.lloyd == (options.levels == "lloyd");
  });
  if (found == std::end(kRows)) throw InternalError(Said::codec_without_row, {.others = {{"codec", named.format}}});
  return *found;
}

std::shared_ptr<const Codec> make_codec(const std::string& format, const CodecOptions& options, SimdLevel level) {
  const Format known = format_named(format);
  const NamedCodec named = {format, settled(known, options)};
  return std::make_shared<RunCodec>(row_of(named), named.options, name_of(known, named.options), level);
}

NamedCodec parse_codec_name(const std::string& name) {
  const std::vector<std::string> words = split(name, '/');
  CodecOptions options;
  bool understood = words.size() == 1 || is_number(words[1], options.block_size);
  for (size_t i = 2; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "stochastic") {
      options.rounding = word;
    } else if (word == "hadamard") {
      options.rotation = word;
    } else if (word == "lloyd") {
      options.levels = word;
    } else if (word.starts_with("seed")) {
      understood = understood && is_number(std::string_view(word).substr(4), options.seed);
    } else {
      options.variant = word;
    }
  }
  if (understood) {
    // A codec has exactly one name: repeated, reordered or differently spelled options are errors.
    const Format format = format_named(words[0]);
    options = settled(format, options);
    if (name_of(format, options) == name) return {words[0], options};
  }
  refuse(Said::codec_name_unknown, {{"value", name}});
}

std::shared_ptr<const Codec> codec_named(const std::string& name, SimdLevel level) {
  const NamedCodec named = parse_codec_name(name);
  return make_codec(named.format, named.options, level);
}

}  // namespace hvd
