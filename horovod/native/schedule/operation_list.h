// The operations that ranks request, one row each. Agreement, caching, checks and error messages follow from the rows.
#pragma once

#include <cstdint>
#include <string_view>

namespace hvd {

// The properties of an operation that agreement, caching and errors depend on.
struct OperationKind {
  enum class Tensors : uint8_t { kNone, kOne, kGroup };

  std::string_view name;
  Tensors tensors = Tensors::kNone;
  bool reduces = false, has_root = false;
  // "gather" or "scatter" along the first dimension, which may differ by rank. Null: all ranks have one shape.
  const char* along_rows = nullptr;
};

// kMissing: a question about gradients that a backward pass lacks (see missing_gradients.h).
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
Operation last_of(Operation);
inline std::string_view name_of(Operation operation) { return kind_of(operation).name; }
// Whether scripts repeat it under one name, so that the response cache remembers it.
inline bool is_repeated(Operation operation) { return kind_of(operation).tensors != OperationKind::Tensors::kNone; }

}  // namespace hvd
