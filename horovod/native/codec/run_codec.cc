#include "codec/run_codec.h"

#include <vector>

#include "codec/kernels.h"
#include "codec/random_bits.h"

namespace hvd {
namespace {

// Of a rotation, for each element of a block.
std::vector<uint32_t> signs_of(const FormatRow& row, const CodecOptions& options) {
  std::vector<uint32_t> signs(row.rotated ? static_cast<size_t>(options.block_size) : 0);
  for (size_t i = 0; i < signs.size(); ++i) signs[i] = rotation_sign(options.seed, i);
  return signs;
}

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

}  // namespace

std::shared_ptr<const Codec> make_run_codec(const FormatRow& row, const NamedCodec& named, const std::string& name,
                                            SimdLevel level) {
  return std::make_shared<RunCodec>(row, named.options, name, level);
}

}  // namespace hvd
