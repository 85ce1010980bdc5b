// Submissions as collectives take them: tensors with keys of their random numbers, and what becomes of them.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "collective/layout.h"
#include "schedule/draw_keys.h"
#include "schedule/submission.h"

namespace hvd {

// Over `size` ranks.
BucketReduction reduction_of(const Submission& submission, DType dtype, int size);

// Its tensors of a dtype, each with its place in the group, for the rank of that number. Counts one more use of the
// name, or of the tensors' feedback, if the codec draws random numbers.
std::vector<std::pair<BucketTensor, size_t>> bucket_tensors_of(const Submission& submission, DType dtype, int rank,
                                                               DrawKeys& draw_keys);

}  // namespace hvd
