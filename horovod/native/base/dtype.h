// The element types of tensors. A dtype is one line here; everything else is derived from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace hvd {

// Storage types of the 16-bit floats: bits only, arithmetic happens in float32 (codec/minifloat.h converts).
struct Float16 {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

// X(enumerator, number on the wire and in Python, C++ storage type, name). Numbers are never reused.
#define HVD_FOR_EACH_DTYPE(X)          \
  X(kUInt8, 0, uint8_t, "uint8")       \
  X(kInt8, 1, int8_t, "int8")          \
  X(kInt16, 2, int16_t, "int16")       \
  X(kInt32, 3, int32_t, "int32")       \
  X(kInt64, 4, int64_t, "int64")       \
  X(kFloat16, 5, Float16, "float16")   \
  X(kFloat32, 6, float, "float32")     \
  X(kFloat64, 7, double, "float64")    \
  X(kBool, 8, bool, "bool")            \
  X(kBFloat16, 9, BFloat16, "bfloat16")

enum class DType : uint8_t {
#define HVD_ENUMERATOR(name, number, type, text) name = number,
  HVD_FOR_EACH_DTYPE(HVD_ENUMERATOR)
#undef HVD_ENUMERATOR
};

#define HVD_ONE(name, number, type, text) +1
inline constexpr int kDTypeCount = 0 HVD_FOR_EACH_DTYPE(HVD_ONE);
#undef HVD_ONE

constexpr size_t size_of(DType dtype) {
  switch (dtype) {
#define HVD_SIZE(name, number, type, text) \
  case DType::name:                        \
    return sizeof(type);
    HVD_FOR_EACH_DTYPE(HVD_SIZE)
#undef HVD_SIZE
  }
  return 0;
}

constexpr std::string_view name_of(DType dtype) {
  switch (dtype) {
#define HVD_NAME(name, number, type, text) \
  case DType::name:                        \
    return text;
    HVD_FOR_EACH_DTYPE(HVD_NAME)
#undef HVD_NAME
  }
  return "?";
}

constexpr bool is_float(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16 || dtype == DType::kFloat32 ||
         dtype == DType::kFloat64;
}

}  // namespace hvd
