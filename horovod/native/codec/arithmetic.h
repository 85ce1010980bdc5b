// Elements of every dtype as numbers: what they are summed in, and how factors multiply them. For host and device alike;
// collective/reduce.h says in words what this says in code.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/dtype.h"
#include "codec/minifloat.h"

namespace hvd {

// How each storage type is summed: in itself, but for the 16-bit floats.
template <typename T>
struct Arithmetic {
  using Sum = T;
  static HVD_SCALAR Sum widen(T x) { return x; }
  static HVD_SCALAR T narrow(Sum x) { return x; }
};
template <>
struct Arithmetic<Float16> {
  using Sum = float;
  static HVD_SCALAR float widen(Float16 x) { return float_from_half(x.bits); }
  static HVD_SCALAR Float16 narrow(float x) { return {half_from_float(x)}; }
};
template <>
struct Arithmetic<BFloat16> {
  using Sum = float;
  static HVD_SCALAR float widen(BFloat16 x) { return float_from_bfloat16(x.bits); }
  static HVD_SCALAR BFloat16 narrow(float x) { return {bfloat16_from_float(x)}; }
};

// Truncates towards zero; what does not fit becomes the nearest number that does, NaN becomes 0.
template <typename S>
HVD_SCALAR S integer_from_double(double x) {
  // A GPU may not call std::numeric_limits, but may use numbers.
  constexpr bool kHasSign = static_cast<S>(-1) < S{1};
  constexpr S kLargest = static_cast<S>(~uint64_t{0} >> (64 - 8 * sizeof(S) + (kHasSign ? 1 : 0)));
  constexpr S kLowest = kHasSign ? static_cast<S>(-kLargest - 1) : S{0};
  if (!(x > static_cast<double>(kLowest))) return x != x ? S{0} : kLowest;
  return x >= static_cast<double>(kLargest) ? kLargest : static_cast<S>(x);
}

template <typename S>
HVD_SCALAR S times(S x, double factor) {
  if constexpr (std::is_integral_v<S>) return integer_from_double<S>(static_cast<double>(x) * factor);
  return static_cast<S>(static_cast<double>(x) * factor);
}
template <>
HVD_SCALAR float times(float x, double factor) {
  return x * static_cast<float>(factor);
}
template <>
HVD_SCALAR bool times(bool x, double factor) {
  return x && factor != 0.0;
}

}  // namespace hvd
