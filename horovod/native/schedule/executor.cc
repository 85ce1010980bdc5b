#include "schedule/executor.h"

#include <chrono>
#include <utility>

#include "base/process.h"
#include "collective/device/gpu_backend.h"
#include "device/device_library.h"
#include "schedule/operations.h"
#include "schedule/rank_gpu.h"
#include "schedule/result_memory.h"

namespace hvd {
namespace {

void require_memory(std::span<const Agreed> together) {
  for (const Agreed& agreed : together) {
    const std::vector<TensorRef>& tensors = agreed.submission.tensors;
    for (size_t t = 0; t < tensors.size(); ++t) {
      if (tensors[t].witness.holds()) continue;
      const std::string& name = agreed.submission.request.name;
      std::string what = "'" + name + "'";
      if (tensors.size() != 1) what += ", number " + std::to_string(t) + " of its group,";
      throw InternalError(Said::tensor_changed, {.tensor = name, .others = {{"what", what}}});
    }
  }
}

}  // namespace

// The part of an executor for GPU tensors. It enqueues operations and does not wait for the GPU.
class GpuExecutor {
 public:
  // Collective: opens the GPU and agrees with the other ranks on NCCL or the host. The context outlives it.
  explicit GpuExecutor(ExecutorContext& context)
      : context_(context),
        backend_(open_gpu_backend(device_library(), context.engine.gpu.workspace(), context.collective, context.plan_rules,
                                  context.engine.settings.gpu_transport)),
        operation_{context, *backend_, [this](size_t bytes) { return allocate(bytes); }} {
    const GpuCosts& costs = backend_->rules().costs.gpu;
    if (costs == GpuCosts()) return;  // not measured
    HVD_LOG(context.engine.log, kInfo, context.label << backend_->name() << ": " << to_text(costs));
  }

  // As Executor::run. The work is in the engine's InFlight until the GPU has done it.
  Result run(std::span<Agreed> together) {
    const auto start = std::chrono::steady_clock::now();
    const auto cpu_start = cpu_time_of_this_thread();
    Device& device = backend_->device();
    DeviceWork work;
    const WatchedPhases watched(context_.collective);  // resets on_phase, which refers to `work`
    begin(together, work);
    Result result =
        run_operation(operation_, together, [&](DType dtype, const Plan& plan) { note_route(work.operations, dtype, plan); });
    work.done = device.record(backend_->stream());
    if (result.data != nullptr) work.memory.push_back(result.data);
    result.device = &device;
    result.done = work.done;
    result.lent = context_.engine.in_flight.lent();
    context_.engine.in_flight.add(std::move(work));
    context_.count(together, start, cpu_start);
    for (const Agreed& agreed : together) {
      context_.counters.gpu_operations += static_cast<int64_t>(agreed.submission.tensors.size());
    }
    return result;
  }

  void tune() { backend_->force(context_.plan_rules.algorithms); }
  void abort() { backend_->abort(); }

 private:
  // Prepares the work, and makes the stream wait until the tensors are ready.
  void begin(std::span<Agreed> together, DeviceWork& work) {
    Device& device = backend_->device();
    const Stream stream = backend_->stream();
    work.tensor = together.front().submission.request.name;
    work.description = description_of(together);
    work.backend = backend_.get();
    work.counters = &context_.counters;
    work.listening = context_.listening();
    if (!work.listening.empty()) {
      set_clock();
      work.operations = observed(together, context_.label);
      work.story.begin = std::chrono::steady_clock::now();
      watch(together.front().submission.request, work);
    }
    for (Agreed& agreed : together) {
      for (const Event& ready : agreed.submission.ready) device.wait(stream, ready);
      if (agreed.submission.handle == 0) furnish(agreed.submission, work);
    }
    work.begun = device.record(stream);
  }

  void set_clock() {
    InFlight& in_flight = context_.engine.in_flight;
    if (!in_flight.needs_clock()) return;
    const Event now = backend_->device().record(backend_->stream());
    context_.engine.gpu.workspace()->await(now);  // short: the stream is idle, or this is the first watched work
    in_flight.set_clock(now);
  }

  // Allocates and fills the stand-in of a rank that has joined.
  void furnish(Submission& stand_in, DeviceWork& work) {
    size_t bytes = 0;
    for (size_t t = 0; t < stand_in.tensors.size(); ++t) bytes += padded(static_cast<size_t>(stand_in.request.bytes_of(t)));
    if (bytes == 0) return;
    const DeviceMemory memory = allocate(bytes);
    place(&stand_in, memory.get());
    Device& device = backend_->device();
    const Stream stream = backend_->stream();
    fill_stand_in(
        stand_in, [&](std::byte* to, int byte, size_t length) { device.fill(stream, to, byte, length); },
        [&](std::byte* to, const std::byte* from, size_t length) { device.copy(stream, to, from, length); });
    work.memory.push_back(memory);
  }

  // Records the operation's activities for listeners.

  // NCCL's routes are one activity, since the host only enqueues. The host's routes report their phases.
  void watch(const Request& request, DeviceWork& work) {
    if (context_.collective.group.size() == 1) return;
    work.story.activities.push_back({activity(Phase::kCommunicate, request, "nccl"), work.story.begin, {}});
    context_.collective.on_phase = [this, &request, is_first = true, &activities = work.story.activities](Phase phase) mutable {
      std::string name = activity(phase, request, context_.collective.group.transport_name());
      if (std::exchange(is_first, false)) activities.clear();
      if (!activities.empty() && activities.back().name == name) return;
      activities.push_back({std::move(name), std::chrono::steady_clock::now(), {}});
    };
  }

  DeviceMemory allocate(size_t bytes) { return context_.engine.in_flight.lent()->take(backend_->device(), bytes); }

  ExecutorContext& context_;
  const std::unique_ptr<GpuBackend> backend_;
  OperationContext operation_;
};

Executor::Executor(const EngineContext& engine, std::vector<int> ranks, std::string label, Counters& counters)
    : context_(engine, std::move(ranks), std::move(label), counters),
      cpu_(make_cpu_backend(context_.collective, context_.plan_rules)),
      on_cpu_{context_, *cpu_, [this](size_t bytes) { return context_.engine.results.take(bytes); }} {}

Executor::~Executor() = default;

void Executor::close_gpu() { gpu_ = nullptr; }

Result Executor::run(std::span<Agreed> together) {
  require_memory(together);
  try {
    if (!together.front().submission.request.on_gpu) return run_on_cpu(together);
    if (gpu_ == nullptr) gpu_ = std::make_unique<GpuExecutor>(context_);
    return gpu_->run(together);
  } catch (const InternalError& error) {
    if (error.failure().kind == ErrorKind::TensorChanged) require_memory(together);  // its error has the tensor's name
    throw;
  }
}

void Executor::tune() {
  context_.tune();
  if (gpu_ != nullptr) gpu_->tune();
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
  Result result = run_operation(on_cpu_, together, [&](DType dtype, const Plan& plan) { note_route(watched, dtype, plan); });
  context_.counters.saturated += cpu_->take_saturated();
  context_.count(together, start, cpu_start);
  for (Listener* listener : listening) listener->on_finish(watched);
  return result;
}

}  // namespace hvd
