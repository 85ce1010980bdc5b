#include "codec/block_codec.h"

#include <vector>

#include "codec/random_bits.h"

namespace hvd {
namespace {

class BlockCodec final : public Codec {
 public:
  BlockCodec(const CodecSpec& spec, BlockFormat format, const BlockKernels& kernels, std::vector<uint32_t> signs)
      : name_(spec.name),
        level_(spec.level),
        stochastic_(spec.stochastic()),
        format_(format),
        kernels_(kernels),
        signs_(std::move(signs)),
        shape_{spec.options.block_size, spec.options.seed, signs_.data()} {}

  const std::string& name() const override { return name_; }
  SimdLevel level() const override { return level_; }
  int64_t block() const override { return shape_.block; }
  bool is_stochastic() const override { return stochastic_; }
  int64_t encoded_bytes(int64_t count) const override {
    const int64_t blocks = (count + shape_.block - 1) / shape_.block;
    return blocks * format_.scale_bytes + (count + format_.codes_per_byte - 1) / format_.codes_per_byte;
  }

  int64_t encode(const float* source, int64_t count, float prescale, Draw draw, uint8_t* run) const override {
    kernels_.encode(source, count, shape_, prescale, draw, run);
    return 0;  // scales are chosen so that nothing saturates
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
  const std::string name_;
  const SimdLevel level_;
  const bool stochastic_;
  const BlockFormat format_;
  const BlockKernels& kernels_;
  const std::vector<uint32_t> signs_;
  const BlockShape shape_;
};

}  // namespace

std::shared_ptr<const Codec> make_block_codec(const CodecSpec& spec, BlockFormat format, const BlockKernels& kernels,
                                              bool rotated) {
  std::vector<uint32_t> signs(rotated ? static_cast<size_t>(spec.options.block_size) : 0);
  for (size_t i = 0; i < signs.size(); ++i) signs[i] = rotation_sign(spec.options.seed, i);
  return std::make_shared<BlockCodec>(spec, format, kernels, std::move(signs));
}

}  // namespace hvd
