// How operations appear to listeners and in errors.
#pragma once

#include <exception>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "collective/context.h"
#include "collective/plan.h"
#include "observe/listener.h"
#include "schedule/executor_context.h"

namespace hvd {

// A group's members appear singly, as <name>_<i>of<n>.
std::vector<ObservedOperation> observed(std::span<const Agreed> together, const std::string& label);

// Of those of the dtype: a group's may go by several routes.
void note_route(std::span<ObservedOperation> operations, DType dtype, const Plan& plan);

// "'allreduce.x' and 3 others, 1200 bytes", for errors.
std::string description_of(std::span<const Agreed> together);

std::string reason_of(const std::exception& error);
// "'allreduce.x' and 3 others, 1200 bytes, failed on rank 1: ..."
std::string failure_text(const std::string& description, int rank, const std::string& reason);

// What a collective's phase is called, in Horovod's words where it has some; `carrier` moves the bytes: "mpi".
std::string activity(Phase phase, const Request& request, const char* carrier);

}  // namespace hvd
