// CUDA's vector types, as far as horovod uses them. Grids and blocks have one dimension.
#pragma once

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct dim3 {
  unsigned x;
  constexpr dim3(unsigned vx) : x(vx) {}
};
