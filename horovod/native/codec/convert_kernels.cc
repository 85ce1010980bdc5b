// Tensors of any floating dtype to and from float32, vectorised by the compiler: compiled once per instruction set.
#include <cstring>

#include "codec/kernels.h"
#include "codec/minifloat.h"

namespace hvd::HVD_SIMD_NAMESPACE {
namespace {

void to_float(DType dtype, const void* source, int64_t count, float* __restrict y) {
  if (dtype == DType::kFloat32) {
    std::memcpy(y, source, static_cast<size_t>(count) * sizeof(float));
  } else if (dtype == DType::kFloat16) {
    const auto* __restrict x = static_cast<const Float16*>(source);
    for (int64_t i = 0; i < count; ++i) y[i] = float_from_half(x[i].bits);
  } else if (dtype == DType::kBFloat16) {
    const auto* __restrict x = static_cast<const BFloat16*>(source);
    for (int64_t i = 0; i < count; ++i) y[i] = float_from_bfloat16(x[i].bits);
  } else {
    const auto* __restrict x = static_cast<const double*>(source);
    for (int64_t i = 0; i < count; ++i) y[i] = static_cast<float>(x[i]);
  }
}

void from_float(DType dtype, const float* __restrict x, int64_t count, void* destination) {
  if (dtype == DType::kFloat32) {
    std::memcpy(destination, x, static_cast<size_t>(count) * sizeof(float));
  } else if (dtype == DType::kFloat16) {
    auto* __restrict y = static_cast<Float16*>(destination);
    for (int64_t i = 0; i < count; ++i) y[i].bits = half_from_float(x[i]);
  } else if (dtype == DType::kBFloat16) {
    auto* __restrict y = static_cast<BFloat16*>(destination);
    for (int64_t i = 0; i < count; ++i) y[i].bits = bfloat16_from_float(x[i]);
  } else {
    auto* __restrict y = static_cast<double*>(destination);
    for (int64_t i = 0; i < count; ++i) y[i] = x[i];
  }
}

}  // namespace

extern const ConvertKernels convert_kernels;
const ConvertKernels convert_kernels = {to_float, from_float};

}  // namespace hvd::HVD_SIMD_NAMESPACE
