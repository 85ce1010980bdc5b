// bit16: IEEE halves, saturating.
//
//   run  := code[count]
//   code := uint16 little endian, IEEE 754 binary16; finite values beyond 65504 saturate there
#include "codec/formats.h"
#include "codec/kernels.h"

namespace hvd {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "runs are little endian and stored as they lie in memory");

class Bit16 final : public Codec {
 public:
  explicit Bit16(SimdLevel level) : level_(level), kernels_(*codec_kernels(level).bit16) {}

  const std::string& name() const override { return name_; }
  SimdLevel level() const override { return level_; }
  int64_t block() const override { return 1; }
  int64_t encoded_bytes(int64_t count) const override { return 2 * count; }

  int64_t encode(const float* source, int64_t count, float prescale, Draw, uint8_t* run) const override {
    return kernels_.encode(source, count, prescale, run);
  }
  void decode(const uint8_t* run, int64_t count, float* destination) const override {
    kernels_.decode(run, count, destination);
  }
  void decode_add(const uint8_t* run, int64_t count, float* accumulator) const override {
    kernels_.decode_add(run, count, accumulator);
  }
  void decode_two(const TwoRuns& runs, int64_t count, float factor, float* destination) const override {
    kernels_.decode_two(runs, count, factor, destination);
  }

 private:
  const std::string name_ = "bit16";
  const SimdLevel level_;
  const Bit16Kernels& kernels_;
};

}  // namespace

std::shared_ptr<const Codec> make_bit16(const CodecSpec& spec) { return std::make_shared<Bit16>(spec.level); }

}  // namespace hvd
