// Elements of tensors, as float32, and back. Any address that the elements' type allows will do for a tensor, and any at all
// in a message; 16 bytes at a time (8 of 16-bit types) where the address is a multiple of that.
#pragma once

#include "codec/arithmetic.h"
#include "cuda/kernels/bytes.cuh"

namespace hvd {

template <typename T>
struct alignas(sizeof(T) * kLaneElements < 16 ? sizeof(T) * kLaneElements : 16) Quad {
  T element[kLaneElements];
};

HVD_DEVICE float widened(float x) { return x; }
HVD_DEVICE float widened(double x) { return static_cast<float>(x); }
HVD_DEVICE float widened(Float16 x) { return float_from_half(x.bits); }
HVD_DEVICE float widened(BFloat16 x) { return float_from_bfloat16(x.bits); }

HVD_DEVICE void narrow(float x, float& to) { to = x; }
HVD_DEVICE void narrow(float x, double& to) { to = x; }
HVD_DEVICE void narrow(float x, Float16& to) { to.bits = half_from_float(x); }
HVD_DEVICE void narrow(float x, BFloat16& to) { to.bits = bfloat16_from_float(x); }

// Bits of an element of that size.
template <int kBytes>
using BitsOf =
    std::conditional_t<kBytes == 8, uint64_t,
                       std::conditional_t<kBytes == 4, uint32_t, std::conditional_t<kBytes == 2, uint16_t, uint8_t>>>;

// An element at any address.
template <typename T>
HVD_DEVICE T load_element(const T* at) {
  if (is_aligned(at, sizeof(T))) return *at;
  BitsOf<sizeof(T)> bits = 0;
  HVD_ROLLED
  for (unsigned i = 0; i < sizeof(T); ++i) {
    bits = static_cast<BitsOf<sizeof(T)>>(bits | BitsOf<sizeof(T)>{reinterpret_cast<const uint8_t*>(at)[i]} << (8 * i));
  }
  return __builtin_bit_cast(T, bits);
}

template <typename T>
HVD_DEVICE void store_element(T element, T* at) {
  if (is_aligned(at, sizeof(T))) {
    *at = element;
    return;
  }
  const auto bits = __builtin_bit_cast(BitsOf<sizeof(T)>, element);
  HVD_ROLLED
  for (unsigned i = 0; i < sizeof(T); ++i) reinterpret_cast<uint8_t*>(at)[i] = static_cast<uint8_t>(bits >> (8 * i));
}

// A tile's elements; those beyond `count` are 0.
template <typename T>
HVD_DEVICE void load_elements(const T* at, int count, Elements& x) {
  if (count == kTile && is_aligned(at, alignof(Quad<T>))) {
    const auto* quads = reinterpret_cast<const Quad<T>*>(at) + lane_number();
    HVD_UNROLLED
    for (int c = 0; c < kChunks; ++c) {
      const Quad<T> quad = quads[c * kLanes];
      HVD_UNROLLED
      for (int j = 0; j < kLaneElements; ++j) x[c][j] = widened(quad.element[j]);
    }
    return;
  }
  auto* floats = reinterpret_cast<Quad<float>*>(scratch());
  HVD_ROLLED
  for (int i = lane_number(); i < kTile; i += kLanes) {
    floats[i / kLaneElements].element[i % kLaneElements] = i < count ? widened(load_element(at + i)) : 0.0f;
  }
  __syncwarp();
  HVD_UNROLLED
  for (int c = 0; c < kChunks; ++c) {
    const Quad<float> quad = floats[c * kLanes + lane_number()];
    HVD_UNROLLED
    for (int j = 0; j < kLaneElements; ++j) x[c][j] = quad.element[j];
  }
  __syncwarp();
}

// Elements in the order of their places; whoever calls this lets lanes meet before the scratch is written again.
HVD_DEVICE void put_in_scratch(const Elements& x) {
  auto* quads = reinterpret_cast<Quad<float>*>(scratch());
  HVD_UNROLLED
  for (int c = 0; c < kChunks; ++c) {
    quads[c * kLanes + lane_number()] = {{x[c][0], x[c][1], x[c][2], x[c][3]}};
  }
  __syncwarp();
}

template <typename T>
HVD_DEVICE void store_elements(const Elements& x, int count, T* at) {
  if (count == kTile && is_aligned(at, alignof(Quad<T>))) {
    auto* quads = reinterpret_cast<Quad<T>*>(at) + lane_number();
    HVD_UNROLLED
    for (int c = 0; c < kChunks; ++c) {
      Quad<T> quad;
      HVD_UNROLLED
      for (int j = 0; j < kLaneElements; ++j) narrow(x[c][j], quad.element[j]);
      quads[c * kLanes] = quad;
    }
    return;
  }
  put_in_scratch(x);
  const auto* floats = reinterpret_cast<const float*>(scratch());
  HVD_ROLLED
  for (int i = lane_number(); i < count; i += kLanes) {
    T element;
    narrow(floats[i], element);
    store_element(element, at + i);
  }
  __syncwarp();
}

// Calls use(at + offset) with a pointer of the dtype's storage type. The floating ones only.
template <bool kHasDouble, typename Byte, typename Use>
HVD_DEVICE void with_elements(DType dtype, Byte* at, int64_t offset, Use use) {
  using Void = std::conditional_t<std::is_const_v<Byte>, const void, void>;
  auto* start = static_cast<Void*>(at);
  auto cast = [&]<typename T>(T*) {
    using Element = std::conditional_t<std::is_const_v<Byte>, const T, T>;
    use(static_cast<Element*>(start) + offset);
  };
  if (dtype == DType::kFloat32) return cast(static_cast<float*>(nullptr));
  if (dtype == DType::kFloat16) return cast(static_cast<Float16*>(nullptr));
  if (dtype == DType::kBFloat16) return cast(static_cast<BFloat16*>(nullptr));
  if constexpr (kHasDouble) cast(static_cast<double*>(nullptr));
}

}  // namespace hvd
