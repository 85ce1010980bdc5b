#include "cuda/device.h"

namespace hvd {
namespace {

// CUDA launches on the thread's current GPU, and kernels/ knows only streams.
class CurrentKernels final : public DeviceKernels {
 public:
  CurrentKernels(int index, std::unique_ptr<DeviceKernels> kernels) : index_(index), kernels_(std::move(kernels)) {}

  void encode(Stream stream, const DeviceCodec& codec, DType dtype, PieceTable table, double prescale,
              std::byte* message) override {
    const CurrentDevice current(index_);
    kernels_->encode(stream, codec, dtype, table, prescale, message);
  }
  void decode(Stream stream, const DeviceCodec& codec, DType dtype, PieceTable table, const std::byte* message) override {
    const CurrentDevice current(index_);
    kernels_->decode(stream, codec, dtype, table, message);
  }
  void reduce(Stream stream, PieceTable table, const DeviceReduction& reduction) override {
    const CurrentDevice current(index_);
    kernels_->reduce(stream, table, reduction);
  }
  void pack(Stream stream, DType dtype, PieceTable table, double prescale, std::byte* message) override {
    const CurrentDevice current(index_);
    kernels_->pack(stream, dtype, table, prescale, message);
  }
  void unpack(Stream stream, DType dtype, PieceTable table, double factor, double divisor, const std::byte* message) override {
    const CurrentDevice current(index_);
    kernels_->unpack(stream, dtype, table, factor, divisor, message);
  }
  int64_t take_saturated() override {
    const CurrentDevice current(index_);
    return kernels_->take_saturated();
  }

 private:
  const int index_;
  const std::unique_ptr<DeviceKernels> kernels_;
};

}  // namespace

std::unique_ptr<DeviceKernels> kernels_of_gpu(int index, std::unique_ptr<DeviceKernels> kernels) {
  return std::make_unique<CurrentKernels>(index, std::move(kernels));
}

}  // namespace hvd
