// CUDA's vector types: two, three or four of a kind, aligned like CUDA's so that 16-byte accesses are checked by UBSan.
#pragma once

#define EMULATED_CUDA_VECTOR(type, name, align2, align4)                                             \
  struct alignas(align2) name##2 { type x, y; };                                                     \
  struct alignas(align4) name##4 { type x, y, z, w; };                                               \
  inline name##2 make_##name##2(type x, type y) { return {x, y}; }                                   \
  inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }

EMULATED_CUDA_VECTOR(signed char, char, 2, 4)
EMULATED_CUDA_VECTOR(unsigned char, uchar, 2, 4)
EMULATED_CUDA_VECTOR(short, short, 4, 8)
EMULATED_CUDA_VECTOR(unsigned short, ushort, 4, 8)
EMULATED_CUDA_VECTOR(int, int, 8, 16)
EMULATED_CUDA_VECTOR(unsigned, uint, 8, 16)
EMULATED_CUDA_VECTOR(float, float, 8, 16)
EMULATED_CUDA_VECTOR(long long, longlong, 16, 16)
EMULATED_CUDA_VECTOR(unsigned long long, ulonglong, 16, 16)
EMULATED_CUDA_VECTOR(double, double, 16, 16)
#undef EMULATED_CUDA_VECTOR

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned vx = 1, unsigned vy = 1, unsigned vz = 1) : x(vx), y(vy), z(vz) {}
};
struct uint3 {
  unsigned x, y, z;
};
