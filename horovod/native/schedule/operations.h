// What an operation is made of, whatever memory its tensors are in: which of them take part in what, where results go, what the
// caller gets. How bytes are moved and reduced is the backend's. Engine thread only.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "collective/backend.h"
#include "schedule/executor_context.h"
#include "schedule/result.h"

namespace hvd {

// What operations of one backend have. All of it outlives them.
struct OperationContext {
  ExecutorContext& context;
  Backend& backend;
  // Memory for a result, of the kind that the backend works in.
  std::function<std::shared_ptr<std::byte[]>(size_t bytes)> allocate;
};
using OnPlan = std::function<void(DType dtype, const Plan& plan)>;

// Several are one bucket. `on_plan` hears how the reduction of each dtype is about to be done.
Result carry_out(const OperationContext& with, std::span<const Agreed> together, const OnPlan& on_plan);

}  // namespace hvd
