// Arithmetic on tensors: Sum, Min, Max and Product for each dtype, on tiles that fit the L1 cache.
//
// float16, bfloat16 and float32 are summed in float32, float64 in float64, integers in their own type (wrapping). Sums are in
// rank order and rounded once. For bool, Sum and Max mean "any"; Product, Min and Average mean "all". Scale factors multiply
// floats in the type of the sum, and integers in float64, truncating towards zero and saturating. The average of integers does
// not wrap: see integer_average.h. Min and Max return NaN if any input is NaN.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/dtype.h"
#include "base/simd.h"

namespace hvd {

// Numbers as in Horovod's Python constants. Average is Sum with a divisor.
enum class ReduceOp : uint8_t { kAverage = 0, kSum = 1, kAdasum = 2, kMin = 3, kMax = 4, kProduct = 5 };
constexpr ReduceOp last_of(ReduceOp) { return ReduceOp::kProduct; }

constexpr std::string_view name_of(ReduceOp op) {
  constexpr std::string_view kNames[] = {"Average", "Sum", "Adasum", "Min", "Max", "Product"};
  return kNames[static_cast<int>(op)];
}

// result = value * factor / divisor. The divisor is separate so that averages of integers are exact.
struct Scale {
  double factor = 1.0;
  double divisor = 1.0;
  bool is_one() const { return factor == 1.0 && divisor == 1.0; }
};

// Bytes of one element of a partial sum.
constexpr size_t accumulator_size(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16 ? sizeof(float) : size_of(dtype);
}

struct ReduceKernels {
  // accumulator = x * prescale
  void (*load)(DType dtype, const void* x, int64_t count, double prescale, void* accumulator);
  // accumulator = accumulator op (x * prescale)
  void (*combine)(DType dtype, ReduceOp op, const void* x, int64_t count, double prescale, void* accumulator);
  // y = accumulator * scale, rounded to dtype; y may be the accumulator if both have the same element size
  void (*store)(DType dtype, const void* accumulator, int64_t count, Scale scale, void* y);
  // y = a op b, for dtypes that accumulate in their own type
  void (*combine_two)(DType dtype, ReduceOp op, const void* a, const void* b, int64_t count, void* y);
  // y = x * prescale + residual; y may be x
  void (*compensate)(const float* x, int64_t count, float prescale, const float* residual, float* y);
  // residual = wanted - got, or 0 if the bits of its magnitude are above `limit`, the bits of a finite number; so an Inf or NaN
  // affects one step only. Returns the bits of the largest magnitude of all differences.
  uint32_t (*keep_lost)(const float* wanted, const float* got, int64_t count, uint32_t limit, float* residual);
};

const ReduceKernels& reduce_kernels(SimdLevel level);

// ---- neutral elements -----------------------------------------------------------------------------------------------

// The element that a rank without data contributes, so that the others' result does not change: zero for Sum, Average and
// Adasum, one for Product, an extreme for Min and Max. It stays neutral when it is multiplied by `prescale`; for Product that
// must be 1 (see has_neutral_element). The first size_of(dtype) bytes are the stored element.
std::array<std::byte, 8> neutral_element(DType dtype, ReduceOp op, double prescale);

// False for a product with a prescale: not every dtype has a number that becomes 1 when it is scaled.
constexpr bool has_neutral_element(ReduceOp op, double prescale) { return op != ReduceOp::kProduct || prescale == 1.0; }

// Fills memory with copies of one element by fill(to, byte, bytes) and copy(to, from, bytes) only, which GPUs have and which do
// not read host memory.
template <typename Fill, typename Copy>
void repeat(const std::array<std::byte, 8>& element, size_t size, std::byte* memory, size_t bytes, Fill fill, Copy copy) {
  if (bytes == 0) return;
  if (std::all_of(element.begin(), element.begin() + size, [&](std::byte byte) { return byte == element[0]; })) {
    return fill(memory, std::to_integer<int>(element[0]), bytes);
  }
  for (size_t i = 0; i < size; ++i) fill(memory + i, std::to_integer<int>(element[i]), size_t{1});
  for (size_t done = size; done < bytes; done *= 2) copy(memory + done, memory, std::min(done, bytes - done));
}

}  // namespace hvd
