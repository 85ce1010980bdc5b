// The steps of an operation, whatever memory its tensors are in: which of them take part in what, where results go, what the
// caller gets. How bytes are moved and reduced is the backend's. Engine thread only.
#pragma once

#include <cstddef>
#include <exception>
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

// What operations of one backend have. All of it outlives them.
struct OperationContext {
  ExecutorContext& context;
  Backend& backend;
  // Memory for a result, of the kind that the backend works in.
  std::function<std::shared_ptr<std::byte[]>(size_t bytes)> allocate;
};
using OnPlan = std::function<void(DType dtype, const Plan& plan)>;

// Several are one bucket. `on_plan` hears how the reduction of each dtype is about to be done.
Result run_operation(const OperationContext& with, std::span<const Agreed> together, const OnPlan& on_plan);

// ---- how operations appear to listeners and in errors ---------------------------------------------------------------

// A group's members appear singly, as <name>_<i>of<n>.
std::vector<ObservedOperation> observed(std::span<const Agreed> together, const std::string& label);

// Of those of the dtype: a group's may go by several routes.
void note_route(std::span<ObservedOperation> operations, DType dtype, const Plan& plan);

// "'allreduce.x' and 3 others, 1200 bytes", for errors.
std::string description_of(std::span<const Agreed> together);

// "'allreduce.x' and 3 others, 1200 bytes, failed on rank 1: ..."; about the tensor, unless its cause is about another.
Failure failed(const std::string& tensor, const std::string& description, int rank, const Failure& cause);

// What a collective's phase is called, in Horovod's words where it has some; `carrier` moves the bytes: "mpi".
std::string activity(Phase phase, const Request& request, const char* carrier);

}  // namespace hvd
