// A stand-in for CUDA's header of this name: the part of the runtime that horovod uses, over host memory. Kernels are C++
// functions that run on the CPU; see emulated/threads.h for how a block's threads do.
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
// A block runs on one thread of the CPU from beginning to end, so that thread's variables are the block's.
#define __shared__ thread_local

#include "emulated/api.h"
#include "emulated/atomics.h"
#include "emulated/intrinsics.h"
#include "emulated/launch.h"
#include "emulated/threads.h"
#include "emulated/vectors.h"
