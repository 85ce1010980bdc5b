// NCCL's sums over host memory.
#pragma once

#include <cstddef>
#include <vector>

#include "cuda/nccl_api.h"

namespace emulated_nccl {

size_t size_of(hvd::nccl::DataType type);  // 0 for an invalid type
// Sums one contribution of each rank, in rank order; 16-bit floats in float32, rounded at the end.
void reduce(const std::vector<const void*>& contributions, void* result, size_t count, hvd::nccl::DataType type,
            hvd::nccl::RedOp op);

}  // namespace emulated_nccl
