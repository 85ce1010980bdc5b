#include "sums.h"

#include <algorithm>
#include <cstdint>

#include "codec/minifloat.h"

namespace emulated_nccl {
namespace {

using namespace hvd::nccl;

template <typename T>
T combined(RedOp op, T a, T b) {
  switch (op) {
    case kProd:
      return static_cast<T>(a * b);
    case kMax:
      return std::max(a, b);
    case kMin:
      return std::min(a, b);
    default:
      return static_cast<T>(a + b);
  }
}

template <typename T>
struct Plain {
  using Stored = T;
  using Sum = T;
  static T load(T value) { return value; }
  static T store(T value) { return value; }
};
struct Half {
  using Stored = uint16_t;
  using Sum = float;
  static float load(uint16_t code) { return hvd::float_from_half(code); }
  static uint16_t store(float value) { return hvd::half_from_float(value); }
};
struct Brain {
  using Stored = uint16_t;
  using Sum = float;
  static float load(uint16_t code) { return hvd::float_from_bfloat16(code); }
  static uint16_t store(float value) { return hvd::bfloat16_from_float(value); }
};

template <typename Format>
void reduce_as(const std::vector<const void*>& contributions, void* result, size_t count, RedOp op) {
  auto* out = static_cast<typename Format::Stored*>(result);
  for (size_t i = 0; i < count; ++i) {
    const auto element = [&](size_t rank) {
      return Format::load(static_cast<const typename Format::Stored*>(contributions[rank])[i]);
    };
    typename Format::Sum sum = element(0);
    for (size_t rank = 1; rank < contributions.size(); ++rank) sum = combined(op, sum, element(rank));
    out[i] = Format::store(sum);
  }
}

}  // namespace

size_t size_of(DataType type) {
  constexpr size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return type < 0 || type > kBfloat16 ? 0 : kSizes[type];
}

void reduce(const std::vector<const void*>& contributions, void* result, size_t count, DataType type, RedOp op) {
  switch (type) {
    case kInt8:
      return reduce_as<Plain<int8_t>>(contributions, result, count, op);
    case kUint8:
      return reduce_as<Plain<uint8_t>>(contributions, result, count, op);
    case kInt32:
      return reduce_as<Plain<int32_t>>(contributions, result, count, op);
    case kUint32:
      return reduce_as<Plain<uint32_t>>(contributions, result, count, op);
    case kInt64:
      return reduce_as<Plain<int64_t>>(contributions, result, count, op);
    case kUint64:
      return reduce_as<Plain<uint64_t>>(contributions, result, count, op);
    case kFloat16:
      return reduce_as<Half>(contributions, result, count, op);
    case kFloat32:
      return reduce_as<Plain<float>>(contributions, result, count, op);
    case kFloat64:
      return reduce_as<Plain<double>>(contributions, result, count, op);
    case kBfloat16:
      return reduce_as<Brain>(contributions, result, count, op);
  }
}

}  // namespace emulated_nccl
