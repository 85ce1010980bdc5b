// The loops of reduce.h, compiled once per instruction set and vectorised by the compiler.
#include <cstdint>
#include <type_traits>

#include "codec/arithmetic.h"
#include "collective/reduce.h"

namespace hvd::HVD_SIMD_NAMESPACE {
namespace {

// Integers wrap: signed overflow is undefined, so their sums and products are computed unsigned.
template <typename S>
struct Wrapping {
  using Type = S;
};
template <>
struct Wrapping<int8_t> {
  using Type = uint8_t;
};
template <>
struct Wrapping<int16_t> {
  using Type = uint32_t;  // uint16_t would be promoted to int, whose product can overflow
};
template <>
struct Wrapping<int32_t> {
  using Type = uint32_t;
};
template <>
struct Wrapping<int64_t> {
  using Type = uint64_t;
};

template <ReduceOp kOp, typename S>
HVD_SCALAR S apply(S a, S b) {
  using W = typename Wrapping<S>::Type;
  if constexpr (kOp == ReduceOp::kSum) return static_cast<S>(static_cast<W>(a) + static_cast<W>(b));
  if constexpr (kOp == ReduceOp::kProduct) return static_cast<S>(static_cast<W>(a) * static_cast<W>(b));
  // A comparison with NaN is false; the conditions are written so that a NaN on either side wins.
  if constexpr (kOp == ReduceOp::kMin) return (a < b || a != a) ? a : b;
  if constexpr (kOp == ReduceOp::kMax) return (a > b || a != a) ? a : b;
}
template <>
HVD_SCALAR bool apply<ReduceOp::kSum, bool>(bool a, bool b) {
  return a || b;
}
template <>
HVD_SCALAR bool apply<ReduceOp::kProduct, bool>(bool a, bool b) {
  return a && b;
}

// Calls f<T>() with the storage type of a dtype.
template <typename F>
HVD_SCALAR void with_type(DType dtype, F f) {
  switch (dtype) {
#define HVD_CASE(name, number, type, text) \
  case DType::name:                        \
    f.template operator()<type>();         \
    return;
    HVD_FOR_EACH_DTYPE(HVD_CASE)
#undef HVD_CASE
  }
}

// Calls f<T, op>(). Average is passed as Sum.
template <typename F>
HVD_SCALAR void with_type_and_op(DType dtype, ReduceOp op, F f) {
  with_type(dtype, [&]<typename T>() {
    if (op == ReduceOp::kMin) return f.template operator()<T, ReduceOp::kMin>();
    if (op == ReduceOp::kMax) return f.template operator()<T, ReduceOp::kMax>();
    if (op == ReduceOp::kProduct) return f.template operator()<T, ReduceOp::kProduct>();
    f.template operator()<T, ReduceOp::kSum>();
  });
}

template <typename T>
void load_as(const T* x, int64_t count, double prescale, typename Arithmetic<T>::Sum* sum) {
  if (prescale == 1.0) {
    for (int64_t i = 0; i < count; ++i) sum[i] = Arithmetic<T>::widen(x[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) sum[i] = times(Arithmetic<T>::widen(x[i]), prescale);
  }
}

template <typename T, ReduceOp kOp>
void combine_as(const T* __restrict x, int64_t count, double prescale, typename Arithmetic<T>::Sum* __restrict sum) {
  using S = typename Arithmetic<T>::Sum;
  if (prescale == 1.0) {
    for (int64_t i = 0; i < count; ++i) sum[i] = apply<kOp, S>(sum[i], Arithmetic<T>::widen(x[i]));
  } else {
    for (int64_t i = 0; i < count; ++i) sum[i] = apply<kOp, S>(sum[i], times(Arithmetic<T>::widen(x[i]), prescale));
  }
}

template <typename T>
void store_as(const typename Arithmetic<T>::Sum* sum, int64_t count, Scale scale, T* y) {
  using S = typename Arithmetic<T>::Sum;
  if (scale.is_one()) {
    for (int64_t i = 0; i < count; ++i) y[i] = Arithmetic<T>::narrow(sum[i]);
  } else if constexpr (std::is_floating_point_v<S>) {
    const double factor = scale.factor / scale.divisor;
    for (int64_t i = 0; i < count; ++i) y[i] = Arithmetic<T>::narrow(times(sum[i], factor));
  } else if (std::is_same_v<S, bool> || scale.factor != 1.0) {
    for (int64_t i = 0; i < count; ++i) y[i] = times(sum[i], scale.factor / scale.divisor);
  } else {
    const auto divisor = static_cast<int64_t>(scale.divisor);  // the number of ranks
    for (int64_t i = 0; i < count; ++i) y[i] = static_cast<T>(static_cast<int64_t>(sum[i]) / divisor);
  }
}

template <typename T, ReduceOp kOp>
void combine_two_as(const T* a, const T* b, int64_t count, T* __restrict y) {
  for (int64_t i = 0; i < count; ++i) y[i] = apply<kOp, T>(a[i], b[i]);
}

void load(DType dtype, const void* x, int64_t count, double prescale, void* accumulator) {
  with_type(dtype, [&]<typename T>() {
    load_as(static_cast<const T*>(x), count, prescale, static_cast<typename Arithmetic<T>::Sum*>(accumulator));
  });
}

void combine(DType dtype, ReduceOp op, const void* x, int64_t count, double prescale, void* accumulator) {
  with_type_and_op(dtype, op, [&]<typename T, ReduceOp kOp>() {
    combine_as<T, kOp>(static_cast<const T*>(x), count, prescale, static_cast<typename Arithmetic<T>::Sum*>(accumulator));
  });
}

void store(DType dtype, const void* accumulator, int64_t count, Scale scale, void* y) {
  with_type(dtype, [&]<typename T>() {
    store_as(static_cast<const typename Arithmetic<T>::Sum*>(accumulator), count, scale, static_cast<T*>(y));
  });
}

void combine_two(DType dtype, ReduceOp op, const void* a, const void* b, int64_t count, void* y) {
  with_type_and_op(dtype, op, [&]<typename T, ReduceOp kOp>() {
    if constexpr (std::is_same_v<T, typename Arithmetic<T>::Sum>) {
      combine_two_as<T, kOp>(static_cast<const T*>(a), static_cast<const T*>(b), count, static_cast<T*>(y));
    }
  });
}

void compensate(const float* x, int64_t count, float prescale, const float* __restrict residual, float* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] * prescale + residual[i];
}

// Compares magnitudes as signed integers, which every instruction set supports.
uint32_t keep_lost(const float* __restrict wanted, const float* __restrict got, int64_t count, uint32_t limit,
                   float* __restrict residual) {
  const auto most = static_cast<int32_t>(limit);
  int32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const float lost = wanted[i] - got[i];
    const auto magnitude = static_cast<int32_t>(bits_of(lost) & ~kSignBit);
    largest = magnitude > largest ? magnitude : largest;
    residual[i] = magnitude <= most ? lost : 0.0f;
  }
  return static_cast<uint32_t>(largest);
}

}  // namespace

extern const ReduceKernels reduce_kernels_table;
const ReduceKernels reduce_kernels_table = {load, combine, store, combine_two, compensate, keep_lost};

}  // namespace hvd::HVD_SIMD_NAMESPACE
