// A backend carries out a process set's collectives for tensors in one kind of memory: the CPU's (backend.cc), or a GPU's,
// through NCCL or through the host (device/gpu_backend.h). A backend hands an operation that it does not support to another
// backend. Belongs to its engine's thread.
//
// Calls throw InternalError if a transport or NCCL fails. Pointers point to the backend's kind of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collective/context.h"
#include "collective/layout.h"
#include "collective/movement.h"
#include "collective/plan.h"

namespace hvd {

class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  virtual ~Backend() = default;

  // For logs: "the CPU", "GPU 1".
  virtual std::string name() const = 0;

  // The inputs of a plan, the same on every rank.
  virtual PlanFacts facts(std::span<const BucketTensor> tensors, const BucketReduction& reduction) const = 0;
  virtual const PlanRules& rules() const = 0;
  // The route is a plan's. The reduction has a codec only if the plan uses it.
  virtual void allreduce(std::span<const BucketTensor> tensors, const BucketReduction& reduction, const Route& route) = 0;
  virtual void adasum(std::span<const BucketTensor> tensors, const BucketReduction& reduction) = 0;
  // See integer_average.h.
  virtual void average_integers(std::span<const BucketTensor> tensors, const BucketReduction& reduction,
                                const std::function<void(const Plan&)>& on_plan) = 0;
  // Rank r gets the reduction of `by_rank[r]`. See reducescatter() in allreduce.h.
  virtual void reducescatter(std::vector<std::vector<BucketTensor>> by_rank, const BucketReduction& reduction,
                             const Route& route) = 0;
  virtual void broadcast(int root, void* data, size_t bytes) = 0;
  virtual void move(const Movement& movement) = 0;
  virtual void copy(void* to, const void* from, size_t bytes) = 0;

  // Finite values that a codec's range cut off since the last call.
  virtual int64_t take_saturated() = 0;
};

// The collectives of CPU tensors, which are complete when a call returns. Both must outlive the backend.
std::unique_ptr<Backend> make_cpu_backend(CollectiveContext& context, const PlanRules& rules);

}  // namespace hvd
