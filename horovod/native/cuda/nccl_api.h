// The part of NCCL's C interface that we call. Its numbers and layouts have been stable since 2.18, so a build needs no nccl.h.
// test/single/cuda/test_nccl_api.py compares it with nccl.h if there is one.
#pragma once

#include <climits>
#include <cstddef>

struct CUstream_st;  // of CUDA

namespace hvd::nccl {

enum Result : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

enum DataType : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
};

enum RedOp : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3 };

struct UniqueId {
  char internal[128];
};

// The layout of 2.18. A newer NCCL sees `size` and `version`, and uses its defaults for later fields.
struct Config {
  static constexpr int kUndefined = INT_MIN;
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = kUndefined;
  int cga_cluster_size = kUndefined;
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
  int unused = kUndefined;
};

inline constexpr int kOldestVersion = 21800;

using Comm = struct ncclComm*;
using CudaStream = ::CUstream_st*;

// X(member, C function, parameters); all functions return a Result.
#define HVD_FOR_EACH_NCCL_FUNCTION(X)                                                                   \
  X(get_unique_id, ncclGetUniqueId, (UniqueId*))                                                        \
  X(comm_init_rank_config, ncclCommInitRankConfig, (Comm*, int size, UniqueId, int rank, Config*))      \
  X(comm_finalize, ncclCommFinalize, (Comm))                                                            \
  X(comm_destroy, ncclCommDestroy, (Comm))                                                              \
  X(comm_abort, ncclCommAbort, (Comm))                                                                  \
  X(comm_get_async_error, ncclCommGetAsyncError, (Comm, Result*))                                       \
  X(all_reduce, ncclAllReduce, (const void*, void*, size_t count, DataType, RedOp, Comm, CudaStream))   \
  X(broadcast, ncclBroadcast, (const void*, void*, size_t count, DataType, int root, Comm, CudaStream)) \
  X(send, ncclSend, (const void*, size_t count, DataType, int peer, Comm, CudaStream))                  \
  X(recv, ncclRecv, (void*, size_t count, DataType, int peer, Comm, CudaStream))                        \
  X(group_start, ncclGroupStart, ())                                                                    \
  X(group_end, ncclGroupEnd, ())

// The functions of an opened library.
struct Functions {
  Result (*get_version)(int*) = nullptr;
  const char* (*get_error_string)(Result) = nullptr;
  const char* (*get_last_error)(Comm) = nullptr;
#define HVD_MEMBER(member, name, parameters) Result(*member) parameters = nullptr;
  HVD_FOR_EACH_NCCL_FUNCTION(HVD_MEMBER)
#undef HVD_MEMBER
};

}  // namespace hvd::nccl
