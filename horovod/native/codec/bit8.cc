// bit8: OCP e4m3 codes, one power-of-two scale byte (e8m0) for each block.
//
//   run   := scale[ceil(count / block)] code[count]
//   scale := uint8, the block's factor is 2^(scale - 127)
//   code  := uint8, e4m3: element = value(code) * factor
#include "codec/formats.h"
#include "codec/kernels.h"

#include "base/error.h"

namespace hvd {
namespace {

constexpr int64_t kDefaultBlock = 128;

class Bit8 final : public Codec {
 public:
  Bit8(int64_t block, SimdLevel level)
      : name_("bit8/" + std::to_string(block)), block_(block), level_(level), kernels_(*codec_kernels(level).bit8) {}

  const std::string& name() const override { return name_; }
  SimdLevel level() const override { return level_; }
  int64_t block() const override { return block_; }
  int64_t encoded_bytes(int64_t count) const override { return (count + block_ - 1) / block_ + count; }

  int64_t encode(const float* source, int64_t count, float prescale, Draw, uint8_t* run) const override {
    kernels_.encode(source, count, block_, prescale, run);
    return 0;  // the scale is chosen so that nothing saturates
  }
  void decode(const uint8_t* run, int64_t count, float* destination) const override {
    kernels_.decode(run, count, block_, destination);
  }
  void decode_add(const uint8_t* run, int64_t count, float* accumulator) const override {
    kernels_.decode_add(run, count, block_, accumulator);
  }

 private:
  const std::string name_;
  const int64_t block_;
  const SimdLevel level_;
  const Bit8Kernels& kernels_;
};

}  // namespace

std::shared_ptr<const Codec> make_bit8(int64_t block_size, SimdLevel level) {
  const int64_t block = block_size == 0 ? kDefaultBlock : block_size;
  if (block < 32 || block > 1024 || (block & (block - 1)) != 0) {
    throw InvalidArgument("bit8 cannot use blocks of " + std::to_string(block) +
                          " elements; choose 32, 64, 128, 256, 512 or 1024");
  }
  return std::make_shared<Bit8>(block, level);
}

}  // namespace hvd
