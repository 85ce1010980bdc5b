// Arithmetic on tensors: what Sum, Min, Max and Product mean for each dtype, in tiles that stay in the L1 cache.
//
// Sums of float16, bfloat16 and float32 are made in float32, of float64 in float64, of integers in their own type
// (wrapping), in rank order, and rounded once. For bool, Sum and Max are "any", Product, Min and Average "all". Scale factors
// multiply floats in the type of the sum, and integers in float64, truncating towards zero and saturating. The average of
// integers is divided as integers, truncating too. NaN wins Min and Max.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/dtype.h"
#include "base/simd.h"

namespace hvd {

// Numbers as in Horovod's Python constants. Average is Sum with a divisor.
enum class ReduceOp : uint8_t { kAverage = 0, kSum = 1, kAdasum = 2, kMin = 3, kMax = 4, kProduct = 5 };
constexpr ReduceOp kLastReduceOp = ReduceOp::kProduct;

constexpr std::string_view name_of(ReduceOp op) {
  constexpr std::string_view kNames[] = {"Average", "Sum", "Adasum", "Min", "Max", "Product"};
  return kNames[static_cast<int>(op)];
}

// What happens to the result: result = value * factor / divisor. The divisor is kept apart so that integer averages are
// exact.
struct Scale {
  double factor = 1.0;
  double divisor = 1.0;
  bool is_one() const { return factor == 1.0 && divisor == 1.0; }
};

// Bytes of one element of the running sum.
constexpr size_t accumulator_size(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16 ? sizeof(float) : size_of(dtype);
}

struct ReduceKernels {
  // accumulator = x * prescale
  void (*load)(DType dtype, const void* x, int64_t count, double prescale, void* accumulator);
  // accumulator = accumulator op (x * prescale)
  void (*combine)(DType dtype, ReduceOp op, const void* x, int64_t count, double prescale, void* accumulator);
  // y = accumulator * scale, rounded to dtype; y may be the accumulator where the sizes are the same
  void (*store)(DType dtype, const void* accumulator, int64_t count, Scale scale, void* y);
  // y = a op b, for dtypes that accumulate in their own type
  void (*combine_two)(DType dtype, ReduceOp op, const void* a, const void* b, int64_t count, void* y);
  // y = x * prescale + residual; y may be x
  void (*compensate)(const float* x, int64_t count, float prescale, const float* residual, float* y);
  // residual = wanted - got, and 0 where its magnitude's bits are above `limit`, which are those of a finite number: an Inf or
  // NaN is seen once, and does not stay. Returns the bits of the largest magnitude of all differences.
  uint32_t (*keep_lost)(const float* wanted, const float* got, int64_t count, uint32_t limit, float* residual);
};

const ReduceKernels& reduce_kernels(SimdLevel level);

}  // namespace hvd
