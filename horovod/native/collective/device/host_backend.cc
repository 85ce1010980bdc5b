// GPU tensors that go through pinned host memory and the CPU's transports; the CPU sums. For GPUs that NCCL cannot join, and
// for operations that NCCL and the kernels do not support.
//
// Calls return when the last copy of a result is enqueued. The calling thread waits for the host's part, and meanwhile serves
// other ranks. If a call throws, the GPU is done with the tensors.
#include <algorithm>
#include <utility>

#include "base/memory.h"
#include "collective/allreduce.h"
#include "collective/device/gpu_backend.h"
#include "collective/device/gpu_tensors.h"
#include "collective/device/host_workspace.h"
#include "collective/integer_average.h"
#include "collective/movement.h"
#include "collective/steps.h"
#include "collective/tensor_memory.h"

namespace hvd {
namespace {

constexpr size_t kBroadcastBytes = size_t{4} << 20;  // a chunk, copied while others travel

class HostBackend final : public GpuBackend {
 public:
  explicit HostBackend(Common common) : GpuBackend(std::move(common)), host_(*workspace_, context_) {}
  ~HostBackend() override { host_.quiesce(); }

  // CPU-reduce, see gpu_tensors.h. Contributions are quantised, then sums, and on hierarchical routes also sums of hosts.
  void allreduce(std::span<const BucketTensor> tensors, const BucketReduction& reduction, const Route& route) override {
    operate([&] {
      std::vector<BucketTensor> claimed(tensors.begin(), tensors.end());
      for (BucketTensor& tensor : claimed) {
        if (tensor.feedback == nullptr || reduction.codec == nullptr) continue;
        tensor.sent =
            tensor.feedback->claim_on(host_.device, host_.stream, Stage::kSent, tensor.offset, tensor.count, host_.attend);
      }
      const auto memory = make_staged_tensors(host_, reduction.prescale);
      saturated_ += allreduce_in_host_memory(context_, claimed, reduction, route, *memory);
      memory->finish();
    });
  }

  // The other operations copy whole tensors to pinned memory.
  void adasum(std::span<const BucketTensor> tensors, const BucketReduction& reduction) override {
    operate([&] {
      const std::vector<BucketTensor> here = staged(tensors, reduction.dtype);
      await_stream();
      hvd::adasum(context_, here, reduction);
      bring_back(tensors, here, reduction.dtype);
    });
  }

  void average_integers(std::span<const BucketTensor> tensors, const BucketReduction& reduction,
                        const std::function<void(const Plan&)>& on_plan) override {
    operate([&] {
      const std::vector<BucketTensor> here = staged(tensors, reduction.dtype);
      await_stream();
      hvd::average_integers(context_, rules_, here, reduction, [&](Plan plan) {
        plan.route.is_staged = true;
        plan.estimates.clear();
        plan.reason = "averages of integers are made by the CPU";
        on_plan(plan);
      });
      bring_back(tensors, here, reduction.dtype);
    });
  }

  void reducescatter(std::vector<std::vector<BucketTensor>> by_rank, const BucketReduction& reduction, const Route&) override {
    operate([&] {
      std::vector<std::vector<BucketTensor>> here;
      for (const std::vector<BucketTensor>& parts : by_rank) here.push_back(staged(parts, reduction.dtype));
      await_stream();
      const auto own = static_cast<size_t>(context_.group.rank());
      CpuTensors memory(context_);
      RankWire wire(context_);
      saturated_ += hvd::reducescatter({context_, memory, wire}, layouts_of(here, reduction));
      bring_back(by_rank[own], here[own], reduction.dtype);
    });
  }

  // The root's GPU copies the next chunk while one travels; another rank's GPU copies the chunk before.
  void broadcast(int root, void* data, size_t bytes) override {
    operate([&] {
      constexpr uint32_t kSlots = 3;
      Device& device = host_.device;
      const bool is_root = context_.group.rank() == root;
      const DeviceMemory memory = host_.pinned.take(std::min(bytes, kSlots * kBroadcastBytes));
      Event copied[kSlots];
      auto slot = [&](uint32_t chunk) { return memory.get() + chunk % kSlots * kBroadcastBytes; };
      auto there = [&](uint32_t chunk) { return static_cast<std::byte*>(data) + chunk * kBroadcastBytes; };
      auto length = [&](uint32_t chunk) { return std::min(kBroadcastBytes, bytes - chunk * kBroadcastBytes); };
      auto fetch = [&](uint32_t chunk) {
        if (!is_root) return;
        copy(slot(chunk), there(chunk), length(chunk));
        copied[chunk % kSlots] = device.record(host_.stream);
      };
      auto send = [&](uint32_t chunk) {
        // On the root the copy has filled the slot; on other ranks it has emptied it.
        if (copied[chunk % kSlots]) host_.await(copied[chunk % kSlots]);
        hvd::broadcast(context_, root, slot(chunk), length(chunk));
        if (is_root) return;
        copy(there(chunk), slot(chunk), length(chunk));
        copied[chunk % kSlots] = device.record(host_.stream);
      };
      const auto chunks = static_cast<uint32_t>((bytes + kBroadcastBytes - 1) / kBroadcastBytes);
      run_pipeline(chunks, {{0, fetch}, {1, send}});
    });
  }

  void move(const Movement& movement) override {
    operate([&] {
      const size_t out = movement.source_bytes(), in = movement.destination_bytes();
      Movement here = movement;
      std::byte* const sent = host_.pinned.take(out).get();
      here.source = sent;
      here.destination = host_.pinned.take(in).get();
      copy(sent, movement.source, out);
      await_stream();
      hvd::move(context_, here);
      copy(movement.destination, here.destination, in);
    });
  }

  int64_t take_saturated() override { return GpuBackend::take_saturated() + std::exchange(saturated_, 0); }
  // Times of work that the GPU has completed.
  HostTimes take_host_times() override { return host_.stopwatch.take(); }

 private:
  // Runs the operation, and ends it also if it throws.
  void operate(const std::function<void()>& operation) {
    try {
      operation();
      host_.end_operation();
    } catch (...) {
      // Callers free their tensors after an error, and the window may go too.
      host_.quiesce();
      throw;
    }
  }

  // staged() returns copies of the tensors in pinned memory, filled when the stream is done; bring_back() copies the results to
  // the destinations.

  // Host collectives work in place, so source and destination are one buffer.
  std::vector<BucketTensor> staged(std::span<const BucketTensor> tensors, DType dtype) {
    size_t bytes = 0;
    for (const BucketTensor& tensor : tensors) bytes += aligned(static_cast<size_t>(tensor.count) * size_of(dtype));
    std::byte* memory = host_.pinned.take(bytes).get();
    std::vector<BucketTensor> all(tensors.begin(), tensors.end());
    for (BucketTensor& tensor : all) {
      const size_t length = static_cast<size_t>(tensor.count) * size_of(dtype);
      copy(memory, tensor.source, length);
      tensor.source = memory;
      if (tensor.destination) tensor.destination = memory;
      memory += aligned(length);
    }
    return all;
  }

  void bring_back(std::span<const BucketTensor> tensors, std::span<const BucketTensor> staged, DType dtype) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      const size_t length = static_cast<size_t>(tensors[i].count) * size_of(dtype);
      if (tensors[i].destination) copy(tensors[i].destination, staged[i].destination, length);
    }
  }

  void await_stream() { host_.await(device().record(stream())); }

  HostWorkspace host_;
  int64_t saturated_ = 0;
};

}  // namespace

std::unique_ptr<GpuBackend> make_host_backend(GpuBackend::Common common) {
  return std::make_unique<HostBackend>(std::move(common));
}

}  // namespace hvd
