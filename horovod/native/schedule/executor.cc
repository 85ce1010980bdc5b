#include "schedule/executor.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/cpu_time.h"
#include "collective/adasum.h"
#include "collective/allgather.h"
#include "collective/allreduce.h"
#include "collective/alltoall.h"
#include "collective/broadcast.h"
#include "collective/reducescatter.h"
#include "schedule/observed.h"
#include "schedule/result_memory.h"

namespace hvd {
namespace {

void require_memory(std::span<const Agreed> together) {
  for (const Agreed& agreed : together) {
    const std::vector<TensorRef>& tensors = agreed.submission.tensors;
    for (size_t t = 0; t < tensors.size(); ++t) {
      if (tensors[t].witness.holds()) continue;
      throw MemoryGone("'" + agreed.submission.request.name + "'" +
                       (tensors.size() == 1 ? "" : ", number " + std::to_string(t) + " of its group,"));
    }
  }
}

}  // namespace

Executor::Executor(const Surroundings& surroundings, std::vector<int> ranks, std::string label, Counters& counters)
    : bench_(surroundings, std::move(ranks), std::move(label), counters), on_cpu_(bench_) {}

Result Executor::run(std::span<Agreed> together) {
  require_memory(together);
  try {
    if (!together.front().submission.request.on_gpu) return run_on_cpu(together);
    if (device_ == nullptr) device_ = std::make_unique<DeviceExecutor>(bench_);
    return device_->run(together);
  } catch (const MemoryGone&) {
    require_memory(together);  // says whose, by name
    throw;
  }
}

void Executor::abort_gpu() {
  if (device_ != nullptr) device_->abort();
}

Result Executor::run_on_cpu(std::span<const Agreed> together) {
  const std::vector<Listener*> listening = bench_.listening();
  CollectiveContext& context = bench_.context;
  const WatchedPhases phases(context);
  std::vector<ObservedOperation> watched;
  if (!listening.empty()) {
    watched = observed(together, bench_.label);
    context.on_phase = [&, last = std::string()](Phase phase) mutable {
      std::string now = activity(phase, together.front().submission.request, context.group.transport_name());
      if (now == last) return;
      last = std::move(now);
      for (Listener* listener : listening) listener->on_activity(watched, last);
    };
  }
  for (Listener* listener : listening) listener->on_start(watched);
  const auto start = std::chrono::steady_clock::now();
  const auto cpu_start = cpu_time_of_this_thread();
  Result result = on_cpu_.carry_out(together);
  bench_.count(together, start, cpu_start);
  for (Listener* listener : listening) listener->on_finish(watched);
  return result;
}

void CpuOperations::allreduce(std::span<const Agreed> together, DType dtype) {
  CollectiveContext& context = bench_.context;
  const std::vector<BucketTensor> tensors = bench_.tensors_of(together, dtype);
  BucketReduction reduction = reduction_of(together.front().submission, dtype, context.group.size());
  bench_.counters.buckets += 1;
  if (reduction.op == ReduceOp::kAdasum) return adasum(context, tensors, reduction);
  const PlanFacts facts = facts_of(context.group, tensors, reduction);
  const Plan plan = plan_allreduce(facts, bench_.plan_rules);
  if (!plan.is_encoded) reduction.codec = nullptr;
  HVD_LOG(bench_.surroundings.log, kDebug,
          "allreduce of " << tensors.size() << " tensors, " << facts.bytes << " bytes, codec "
                          << (reduction.codec ? reduction.codec->name() : "none") << ", route " << name_of(plan.route) << " ("
                          << explain(plan) << ")");
  for (Listener* listener : bench_.listening()) listener->on_route(name_of(plan.route), explain(plan));
  bench_.counters.saturated += hvd::allreduce(context, tensors, reduction, plan.route);
  bench_.count_dropped(together);
}

void CpuOperations::reducescatter(std::span<const Agreed> together, DType dtype) {
  CollectiveContext& context = bench_.context;
  const BucketReduction reduction = reduction_of(together.front().submission, dtype, context.group.size());
  std::vector<std::unique_ptr<Bucket>> slices;
  for (std::vector<BucketTensor>& parts : bench_.parts_of(together, dtype)) {
    slices.push_back(std::make_unique<Bucket>(std::move(parts), reduction, context.simd, *context.tiles));
  }
  bench_.counters.saturated += hvd::reducescatter(context, std::move(slices));
  bench_.counters.buckets += 1;
}

void CpuOperations::allgather(const void* own, std::span<const size_t> bytes, std::byte* all) {
  hvd::allgather(bench_.context, own, bytes, all);
}

void CpuOperations::broadcast(int root, void* data, size_t bytes) { hvd::broadcast(bench_.context, root, data, bytes); }

void CpuOperations::alltoall(const void* source, std::span<const size_t> sent, std::span<const size_t> received,
                             std::byte* destination) {
  hvd::alltoall(bench_.context, source, sent, received, destination);
}

std::shared_ptr<std::byte[]> CpuOperations::allocate(size_t bytes) { return bench_.surroundings.results.take(bytes); }

void CpuOperations::copy(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }

}  // namespace hvd
