#include "collective/reduce.h"

#include <cstring>
#include <limits>
#include <type_traits>

#include "codec/arithmetic.h"

namespace hvd {
namespace {

template <typename S>
S largest() {
  return std::is_floating_point_v<S> ? std::numeric_limits<S>::infinity() : std::numeric_limits<S>::max();
}

template <typename S>
S lowest() {
  return std::is_floating_point_v<S> ? -std::numeric_limits<S>::infinity() : std::numeric_limits<S>::lowest();
}

// In the type of sums. All contributions are scaled alike, and a negative factor reverses the order of numbers, so that the
// opposite extreme is neutral.
template <typename S>
S neutral(ReduceOp op, double prescale) {
  if (op == ReduceOp::kProduct) return S{1};
  if (op != ReduceOp::kMin && op != ReduceOp::kMax) return S{0};
  if constexpr (std::is_floating_point_v<S>) {
    // Infinity times zero is NaN, while all finite numbers become 0.
    if (static_cast<S>(prescale) == S{0}) return S{0};
  }
  const bool turns_over = prescale < 0 && !std::is_same_v<S, bool>;
  return (op == ReduceOp::kMin) != turns_over ? largest<S>() : lowest<S>();
}

}  // namespace

#define HVD_DECLARE_LEVEL(level)                   \
  namespace level {                                \
  extern const ReduceKernels reduce_kernels_table; \
  }
HVD_DECLARE_LEVEL(baseline)
HVD_DECLARE_LEVEL(x86_64_v3)
HVD_DECLARE_LEVEL(x86_64_v4)
#undef HVD_DECLARE_LEVEL

const ReduceKernels& reduce_kernels([[maybe_unused]] SimdLevel level) {
#if defined(HVD_HAVE_X86_64_V3)
  if (level == SimdLevel::kX86_64_V3) return x86_64_v3::reduce_kernels_table;
#endif
#if defined(HVD_HAVE_X86_64_V4)
  if (level == SimdLevel::kX86_64_V4) return x86_64_v4::reduce_kernels_table;
#endif
  return baseline::reduce_kernels_table;
}

std::array<std::byte, 8> neutral_element(DType dtype, ReduceOp op, double prescale) {
  std::array<std::byte, 8> bytes{};
  switch (dtype) {
#define HVD_CASE(name, number, type, text)                                                       \
  case DType::name: {                                                                            \
    const type element = Arithmetic<type>::narrow(neutral<Arithmetic<type>::Sum>(op, prescale)); \
    std::memcpy(bytes.data(), &element, sizeof element);                                         \
    break;                                                                                       \
  }
    HVD_FOR_EACH_DTYPE(HVD_CASE)
#undef HVD_CASE
  }
  return bytes;
}

}  // namespace hvd
