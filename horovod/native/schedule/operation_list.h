// Every operation that ranks ask for, one row each. From these rows come agreement, caching, checks and error messages.
#pragma once

#include <cstdint>
#include <string_view>

namespace hvd {

// What all that handle requests need to know of an operation.
struct OperationKind {
  enum class Tensors : uint8_t { kNone, kOne, kGroup };

  std::string_view name;
  Tensors tensors = Tensors::kNone;
  bool reduces = false, has_root = false;
  // What it does along the first dimension, which then may differ by rank: "gather", "scatter". Null: shapes are alike.
  const char* along_rows = nullptr;
};

// One row each. kMissing: a backward pass has ended without some gradients, and what becomes of them (see missing_gradients.h).
//
//   X(value, its kind's members)
#define HVD_FOR_EACH_OPERATION(X)                                                                        \
  X(kAllreduce, .name = "ALLREDUCE", .tensors = OperationKind::Tensors::kGroup, .reduces = true)         \
  X(kAllgather, .name = "ALLGATHER", .tensors = OperationKind::Tensors::kGroup, .along_rows = "gather")  \
  X(kBroadcast, .name = "BROADCAST", .tensors = OperationKind::Tensors::kOne, .has_root = true)          \
  X(kAlltoall, .name = "ALLTOALL", .tensors = OperationKind::Tensors::kOne, .along_rows = "scatter")     \
  X(kReducescatter, .name = "REDUCESCATTER", .tensors = OperationKind::Tensors::kGroup, .reduces = true) \
  X(kBarrier, .name = "BARRIER")                                                                         \
  X(kJoin, .name = "JOIN")                                                                               \
  X(kAddProcessSet, .name = "ADD_PROCESS_SET")                                                           \
  X(kRemoveProcessSet, .name = "REMOVE_PROCESS_SET")                                                     \
  X(kTune, .name = "TUNE")                                                                               \
  X(kMissing, .name = "MISSING_GRADIENTS")

enum class Operation : uint8_t {
#define HVD_VALUE(value, ...) value,
  HVD_FOR_EACH_OPERATION(HVD_VALUE)
#undef HVD_VALUE
};
const OperationKind& kind_of(Operation operation);
inline std::string_view name_of(Operation operation) { return kind_of(operation).name; }
// Whether scripts repeat it under one name, so that it is worth a place in the response cache.
inline bool is_repeated(Operation operation) { return kind_of(operation).tensors != OperationKind::Tensors::kNone; }

}  // namespace hvd
