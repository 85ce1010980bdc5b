// Failures that tests request.
//
// EMULATED_NCCL_FAIL="ncclAllReduce:2:3": the second call of that function in this process gives result 3.
// EMULATED_NCCL_ASYNC="1:4:6": on rank 1, the fourth operation (group or collective) of a communicator stops with the
// asynchronous error 6; operation 0 causes the error at once, whatever is in progress.
// EMULATED_NCCL_ASYNC_FILE: a file with such words, which may be written at any time.
// EMULATED_NCCL_CONNECTS_LATE: if set, an operation stays in progress, without an error, until its peers have submitted one
// too.
// EMULATED_NCCL_VERSION: the result of ncclGetVersion, by default 22809.
#pragma once

#include <cstdint>

#include "cuda/nccl_api.h"

namespace emulated_nccl {

hvd::nccl::Result injected_failure(const char* function);
// The error of that operation of the rank, counted from 1; operation 0 means an error that comes at once.
hvd::nccl::Result injected_async_error(int rank, uint64_t operation);
int claimed_version();
bool connects_late();

}  // namespace emulated_nccl
