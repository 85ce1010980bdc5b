// What an operation is made of, whatever memory its tensors are in: which of them take part in what, where results go, what the
// caller gets. How bytes are moved and reduced is the backend's. Engine thread only.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "collective/backend.h"
#include "schedule/result.h"
#include "schedule/workbench.h"

namespace hvd {

class Operations {
 public:
  // Memory for a result, of the kind that the backend works in.
  using Allocate = std::function<std::shared_ptr<std::byte[]>(size_t bytes)>;
  using OnPlan = std::function<void(const Plan& plan)>;

  // Both outlive it.
  Operations(Workbench& bench, Backend& backend, Allocate allocate)
      : bench_(bench), backend_(backend), allocate_(std::move(allocate)) {}

  // Several are one bucket. `on_plan` hears how each allreduce is about to be done.
  Result carry_out(std::span<const Agreed> together, const OnPlan& on_plan);

 private:
  // Of the tensors of one dtype.
  void allreduce(std::span<const Agreed> together, DType dtype, const OnPlan& on_plan);
  void reducescatter(std::span<const Agreed> together, DType dtype);
  Result allgather(const Agreed& agreed);
  Result broadcast(const Agreed& agreed);
  Result alltoall(const Agreed& agreed);

  Workbench& bench_;
  Backend& backend_;
  const Allocate allocate_;
};

}  // namespace hvd
