// Kernels that tests launch, each with a C function: their results are known in advance.
#include "cuda/launch.h"

namespace {

constexpr unsigned kAll = 0xffffffffu;

// The sum of a block's elements, by shuffles in warps and by shared memory across warps.
__global__ void __launch_bounds__(256) sum_blocks(const float* values, int count, float* sums) {
  __shared__ float of_warps[32];
  const int index = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  float sum = index < count ? values[index] : 0.0f;
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(kAll, sum, lanes);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  sum = threadIdx.x < (blockDim.x + 31) / 32 ? of_warps[threadIdx.x] : 0.0f;
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(kAll, sum, lanes);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// One of each operation of a warp, with its result: rows of 8 numbers by thread.
__global__ void ask_warp(unsigned* answers) {
  const unsigned lane = threadIdx.x % 32;
  unsigned* row = answers + threadIdx.x * 8;
  row[0] = __shfl_sync(kAll, lane * 10, 5);
  row[1] = __shfl_sync(kAll, lane, 3, 8);
  row[2] = __shfl_xor_sync(kAll, lane, 1);
  row[3] = static_cast<unsigned>(__shfl_sync(kAll, 1ull << 40 | lane, 2) >> 32);
  row[4] = __ballot_sync(kAll, lane % 3 == 0);
  row[5] = static_cast<unsigned>(__any_sync(kAll, lane == 7));
  // The two halves take different branches and meet among themselves.
  row[6] = lane < 16 ? __ballot_sync(0x0000ffffu, lane == 1) : __ballot_sync(0xffff0000u, lane == 17);
  row[7] = threadIdx.x + blockDim.x * 1000;
}

// The sum and the maximum of the blocks' values.
__global__ void count_up(unsigned* counters, unsigned add) {
  atomicAdd(&counters[0], add);
  atomicMax(&counters[1], blockIdx.x * add);
}

// Adds when the host has raised a flag in pinned memory: the test decides when the kernel ends.
__global__ void add_when_raised(float* values, int count, float add, const volatile int* flag) {
  while (*flag == 0) continue;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) values[i] += add;
}

__global__ void reverse_in_shared(const int* from, int* to) {
  int* held = reinterpret_cast<int*>(hvd::dynamic_shared());
  held[threadIdx.x] = from[threadIdx.x];
  __syncthreads();
  to[threadIdx.x] = held[blockDim.x - 1 - threadIdx.x];
}

// Forbidden in a kernel: half of the lanes never arrive, or arrive at another operation.
__global__ void never_meet(int way) {
  if (way == 0 && threadIdx.x < 16) __syncthreads();
  if (way == 0 && threadIdx.x >= 16) __shfl_sync(kAll, 1, 0);
  if (way == 1 && threadIdx.x < 16) __ballot_sync(kAll, 1);
  if (way == 1 && threadIdx.x >= 16) __shfl_sync(kAll, 1, 0);
  if (way == 2) __shfl_sync(0xffffu, 1, 0);
  if (way == 3 && threadIdx.x < 16) __syncwarp(kAll);
  if (way == 3 && threadIdx.x >= 16) __syncwarp(0xfffffff0u);
}

}  // namespace

#define TRIAL extern "C" __attribute__((visibility("default"))) void

TRIAL trial_sum_blocks(const float* values, int count, float* sums, int blocks, int threads, void* stream) {
  hvd::launch(sum_blocks, static_cast<unsigned>(blocks), static_cast<unsigned>(threads), 0, stream, values, count, sums);
}
TRIAL trial_ask_warp(unsigned* answers, void* stream) { hvd::launch(ask_warp, 1, 64, 0, stream, answers); }
TRIAL trial_count_up(unsigned* counters, unsigned add, int blocks, void* stream) {
  hvd::launch(count_up, static_cast<unsigned>(blocks), 96, 0, stream, counters, add);
}
TRIAL trial_add_when_raised(float* values, int count, float add, const int* flag, void* stream) {
  hvd::launch(add_when_raised, 1, 32, 0, stream, values, count, add, flag);
}
TRIAL trial_reverse(const int* from, int* to, int threads, void* stream) {
  hvd::launch(reverse_in_shared, 1, static_cast<unsigned>(threads), static_cast<size_t>(threads) * 4, stream, from, to);
}
TRIAL trial_never_meet(int way, void* stream) { hvd::launch(never_meet, 1, 32, 0, stream, way); }
