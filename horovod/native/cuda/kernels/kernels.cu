#include <cmath>
#include <string>

#include "base/error.h"
#include "cuda/kernels/codec_kernels.cuh"
#include "cuda/kernels/elements.cuh"
#include "cuda/kernels/kernels.h"
#include "cuda/launch.h"

namespace hvd {
// Named, because nvcc puts a digest of this file's path into an unnamed namespace, and wheels must be reproducible.
inline namespace of_kernels {

FormatKernels kernels_for(Coding coding) {
  int row = static_cast<int>(coding) - 1;
  if (row < 0) throw InternalError(Said::no_kernel_of_codec);
  if (row < kSixteenBitFormats) return sixteen_bit_kernels(row);
  row -= kSixteenBitFormats;
  return row < kPlainFormats ? plain_kernels(row) : rotated_kernels(row - kPlainFormats);
}

Blocks blocks_of(const DeviceCodec& codec) {
  int log = 0;
  while ((1 << log) < codec.block) ++log;
  if ((1 << log) != codec.block || codec.block > 1024 ||
      (static_cast<int>(codec.coding) > kSixteenBitFormats && codec.block < 32)) {
    throw InvalidArgument(Said::gpu_block_wrong, {.others = {{"value", codec.block}}});
  }
  return {codec.seed, log, codec.is_stochastic};
}

void check_float(DType dtype, bool may_be_double) {
  if (is_float(dtype) && (may_be_double || dtype != DType::kFloat64)) return;
  throw InvalidArgument(Said::gpu_dtype_wrong, {.others = {{"dtype", std::string(name_of(dtype))}}});
}

uint8_t* bytes_at(std::byte* message) { return reinterpret_cast<uint8_t*>(message); }
const uint8_t* bytes_at(const std::byte* message) { return reinterpret_cast<const uint8_t*>(message); }

// A counter in host memory that GPUs can write, so that reading does not wait for them. It only grows, and take() returns the
// difference.
class SaturationCounter {
 public:
  SaturationCounter() {
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, sizeof(unsigned long long), cudaHostAllocPortable | cudaHostAllocMapped), "cudaHostAlloc");
    count_ = static_cast<unsigned long long*>(memory);
    *count_ = 0;
  }
  ~SaturationCounter() { static_cast<void>(cudaFreeHost(count_)); }  // can fail only when the process is about to end
  SaturationCounter(const SaturationCounter&) = delete;
  SaturationCounter& operator=(const SaturationCounter&) = delete;

  unsigned long long* address() { return count_; }
  int64_t take() {
    const unsigned long long now = __atomic_load_n(count_, __ATOMIC_RELAXED);
    return static_cast<int64_t>(now - __atomic_exchange_n(&taken_, now, __ATOMIC_RELAXED));
  }

 private:
  unsigned long long* count_ = nullptr;
  unsigned long long taken_ = 0;
};

class Kernels final : public DeviceKernels {
 public:
  void encode(Stream stream, const DeviceCodec& codec, DType dtype, PieceTable table, double prescale,
              std::byte* message) override {
    check_float(dtype, true);
    if (codec.coding == Coding::kElements) return pack(stream, dtype, table, prescale, message);
    if (table.runs == 0) return;
    launch(kernels_for(codec.coding).encode, grid_of(table), kThreads, 0, stream, blocks_of(codec), dtype, table,
           static_cast<float>(prescale), bytes_at(message), saturated_.address());
  }

  void decode(Stream stream, const DeviceCodec& codec, DType dtype, PieceTable table, const std::byte* message) override {
    check_float(dtype, true);
    if (codec.coding == Coding::kElements) return unpack(stream, dtype, table, 1.0, 1.0, message);
    if (table.runs == 0) return;
    launch(kernels_for(codec.coding).decode, grid_of(table), kThreads, 0, stream, blocks_of(codec), dtype, table,
           bytes_at(message));
  }

  void reduce(Stream stream, PieceTable table, const DeviceReduction& asked) override {
    check_float(asked.dtype, false);
    const Reduction reduction = checked(asked);
    if (table.runs == 0) return;
    if (!reduction.sums_codes && !reduction.result_is_codes) {
      launch(sum_kernel(), grid_of(table), kThreads, 0, stream, table, reduction);
      return;
    }
    const DeviceCodec& codec = reduction.result_is_codes ? asked.out : asked.in;
    launch(kernels_for(codec.coding).reduce, grid_of(table), kThreads, 0, stream, blocks_of(codec), table, reduction,
           saturated_.address());
  }

  void pack(Stream stream, DType dtype, PieceTable table, double prescale, std::byte* message) override {
    if (table.runs == 0) return;
    launch(move_kernel(dtype), grid_of(table), kMoveThreads, 0, stream, table, ElementScale{prescale, 1}, false,
           bytes_at(message));
  }

  void unpack(Stream stream, DType dtype, PieceTable table, double factor, double divisor, const std::byte* message) override {
    const bool divides = !is_float(dtype) && dtype != DType::kBool && factor == 1.0;
    const ElementScale scale = divides ? ElementScale{1.0, static_cast<int64_t>(divisor)} : ElementScale{factor / divisor, 1};
    if (table.runs == 0) return;
    launch(move_kernel(dtype), grid_of(table), kMoveThreads, 0, stream, table, scale, true,
           const_cast<uint8_t*>(bytes_at(message)));
  }

  int64_t take_saturated() override { return saturated_.take(); }

 private:
  static Reduction checked(const DeviceReduction& asked) {
    Reduction reduction;
    reduction.dtype = asked.dtype;
    reduction.sums_codes = asked.in.coding != Coding::kElements;
    reduction.result_is_codes = asked.result != nullptr && asked.out.coding != Coding::kElements;
    reduction.to_destination = asked.to_destination;
    reduction.prescale = static_cast<float>(asked.prescale);
    reduction.factor = static_cast<float>(asked.factor / asked.divisor);
    reduction.result = bytes_at(asked.result);
    reduction.count = static_cast<int>(asked.messages.size());
    if (asked.messages.empty() || asked.messages.size() > kMostContributions) {
      throw InvalidArgument(Said::gpu_sum_count_wrong,
                            {.others = {{"most", kMostContributions}, {"count", asked.messages.size()}}});
    }
    if (reduction.sums_codes && reduction.result_is_codes && asked.in != asked.out) {
      throw InvalidArgument(Said::gpu_does_not_recode);
    }
    for (size_t i = 0; i < asked.messages.size(); ++i) {
      reduction.messages[i] = bytes_at(asked.messages[i]);
      if (reduction.sums_codes && reduction.messages[i] == nullptr) {
        throw InvalidArgument(Said::gpu_contribution_without_codes, {.others = {{"number", i}}});
      }
    }
    return reduction;
  }

  SaturationCounter saturated_;
};

}  // namespace of_kernels

std::unique_ptr<DeviceKernels> make_device_kernels() { return std::make_unique<Kernels>(); }

}  // namespace hvd
