// Replaces CUDA's header of this name: the part of the runtime that horovod uses, over host memory. Kernels are C++ functions
// that run on the CPU; emulated/threads.h describes a block's threads.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
// A block runs on one thread of the CPU from start to end, so a variable of that thread belongs to the block.
#define __shared__ thread_local

#include "emulated/api.h"
#include "emulated/atomics.h"
#include "emulated/intrinsics.h"
#include "emulated/launch.h"
#include "emulated/threads.h"
#include "emulated/vectors.h"
