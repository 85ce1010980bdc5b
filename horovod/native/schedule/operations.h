// The steps of an operation that do not depend on the kind of memory: selection of tensors, memory for results, the caller's
// Result. The backend moves and reduces bytes. Engine thread only.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "collective/backend.h"
#include "collective/context.h"
#include "collective/plan.h"
#include "observe/listener.h"
#include "schedule/context.h"
#include "schedule/handles.h"

namespace hvd {

// The context of a backend's operations, which it outlives.
struct OperationContext {
  ExecutorContext& context;
  Backend& backend;
  // Memory for a result, of the backend's kind.
  std::function<std::shared_ptr<std::byte[]>(size_t bytes)> allocate;
};
using OnPlan = std::function<void(DType dtype, const Plan& plan)>;

// Several submissions are one bucket. Calls `on_plan` before the reduction of each dtype.
Result run_operation(const OperationContext& with, std::span<const Agreed> together, const OnPlan& on_plan);

// ---- how operations appear to listeners and in errors ---------------------------------------------------------------

// Lists a group's members singly, as <name>_<i>of<n>.
std::vector<ObservedOperation> observed(std::span<const Agreed> together, const std::string& label);

// Notes the route of the operations of that dtype, since dtypes of a group may have different routes.
void note_route(std::span<ObservedOperation> operations, DType dtype, const Plan& plan);

// "'allreduce.x' and 3 others, 1200 bytes", for errors.
std::string description_of(std::span<const Agreed> together);

// "'allreduce.x' and 3 others, 1200 bytes, failed on rank 1: ...". `tensor`: unless the cause has another.
Failure failed(const std::string& tensor, const std::string& description, int rank, const Failure& cause);

// The name of a collective's phase, Horovod's if it has one. `carrier` moves the bytes: "mpi".
std::string activity(Phase phase, const Request& request, const char* carrier);

}  // namespace hvd
