#include "schedule/executor.h"

#include <algorithm>
#include <chrono>

#include "base/process.h"
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

Executor::Executor(const EngineContext& engine, std::vector<int> ranks, std::string label, Counters& counters)
    : context_(engine, std::move(ranks), std::move(label), counters),
      cpu_(context_.collective, context_.plan_rules),
      on_cpu_{context_, cpu_, [this](size_t bytes) { return context_.engine.results.take(bytes); }} {}

Result Executor::run(std::span<Agreed> together) {
  require_memory(together);
  try {
    if (!together.front().submission.request.on_gpu) return run_on_cpu(together);
    if (gpu_ == nullptr) gpu_ = std::make_unique<GpuExecutor>(context_);
    return gpu_->run(together);
  } catch (const MemoryGone&) {
    require_memory(together);  // says whose, by name
    throw;
  }
}

void Executor::abort_gpu() {
  if (gpu_ != nullptr) gpu_->abort();
}

Result Executor::run_on_cpu(std::span<const Agreed> together) {
  const std::vector<Listener*> listening = context_.listening();
  CollectiveContext& collective = context_.collective;
  const WatchedPhases phases(collective);
  std::vector<ObservedOperation> watched;
  if (!listening.empty()) {
    watched = observed(together, context_.label);
    collective.on_phase = [&, last = std::string()](Phase phase) mutable {
      std::string now = activity(phase, together.front().submission.request, collective.group.transport_name());
      if (now == last) return;
      last = std::move(now);
      for (Listener* listener : listening) listener->on_activity(watched, last);
    };
  }
  for (Listener* listener : listening) listener->on_start(watched);
  const auto start = std::chrono::steady_clock::now();
  const auto cpu_start = cpu_time_of_this_thread();
  Result result = carry_out(on_cpu_, together, [&](DType dtype, const Plan& plan) { note_route(watched, dtype, plan); });
  context_.counters.saturated += cpu_.take_saturated();
  context_.count(together, start, cpu_start);
  for (Listener* listener : listening) listener->on_finish(watched);
  return result;
}

}  // namespace hvd
