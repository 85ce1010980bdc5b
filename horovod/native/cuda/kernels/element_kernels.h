// The kernels for messages of elements as they are.
#pragma once

#include "base/dtype.h"
#include "cuda/kernels/sums.cuh"

namespace hvd {

// What becomes of each element between a tensor and a message.
struct ElementScale {
  double factor = 1.0;
  int64_t divisor = 1;  // of integers, instead of the factor
};

// From the pieces' sources into the message, or, where `unpacks`, out of it into their destinations.
constexpr int kMoveThreads = 256;  // of a thread block, which has a run
using MoveKernel = void (*)(PieceTable, ElementScale, bool unpacks, uint8_t* message);
MoveKernel move_kernel(DType dtype);

// From elements to elements.
using SumKernel = void (*)(PieceTable, Reduction);
SumKernel sum_kernel();

}  // namespace hvd
