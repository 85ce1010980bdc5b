// CPU-reduce over several hosts: allreduce_by_hierarchy with tensors in the memory of GPUs. GPUs put codes into their host's
// window, a carrier sums those of its slice, encodes the sum and exchanges it with the other hosts, and results go back to all
// GPUs of the host as codes.
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "collective/device/host_allreduce.h"
#include "collective/device/host_lanes.h"
#include "collective/hierarchy.h"

namespace hvd {
namespace {

// So that what a host sums is rounded by other random numbers than what the carrier itself has contributed to it.
constexpr uint64_t kKeyOfSums = 0xA5A5C3C39696F00Fu;

class EndsOnGpu final : public HierarchyEnds {
 public:
  EndsOnGpu(HostWorkspace& workspace, const PinnedWindow& window, double prescale)
      : workspace_(workspace), window_(window), prescale_(prescale) {}

  std::byte* area(int local_rank) const override { return window_.area(local_rank); }
  size_t area_bytes() const override { return window_.area_bytes(); }
  uint32_t lag() const override { return 1; }
  bool is_elsewhere() const override { return true; }
  int64_t elements_in(int64_t bytes, const BucketReduction& reduction) const override { return elements_of(bytes, reduction); }
  size_t offset(const Steps& slice, uint32_t step, size_t bucket) const override {
    return slice.offset(step, static_cast<int>(bucket));
  }

  // What encoding the sum loses is kept here first: the residuals themselves are of the GPU, and begin at 0 here.
  std::vector<BucketTensor> sums_of(std::vector<BucketTensor> slice) override {
    int64_t kept = 0;
    for (const BucketTensor& tensor : slice) kept += tensor.sent.values ? tensor.count : 0;
    if (kept != 0) {
      lost_memory_ = workspace_.pinned.take(static_cast<size_t>(kept) * sizeof(float));
      std::memset(lost_memory_.get(), 0, static_cast<size_t>(kept) * sizeof(float));
    }
    auto* next = reinterpret_cast<float*>(lost_memory_.get());
    for (BucketTensor& tensor : slice) {
      tensor.sent_key ^= kKeyOfSums;
      Feedback* const feedback = std::exchange(tensor.feedback, nullptr);  // to claim more takes the GPU's residuals away
      if (tensor.sent.values == nullptr || tensor.count == 0) continue;
      lost_.push_back({tensor.sent.values, next, tensor.count});
      tensor.sent = {next, feedback->bound_of_sums()};
      next += tensor.count;
    }
    return slice;
  }

  void begin(const std::vector<Steps>& slices) override {
    std::vector<const Steps*> groups;
    for (const Steps& slice : slices) groups.push_back(&slice);
    lanes_ = std::make_unique<HostLanes>(workspace_, std::move(groups), prescale_);
    slices_ = &slices;
  }
  void deposit(uint32_t step, std::span<std::byte* const> slices) override { lanes_->send(step, slices.front()); }
  void await_deposited(uint32_t step) override { lanes_->await_sent(step); }
  void sum(Bucket& bucket, Range range, Data data, std::byte* message) override {
    const auto begin = std::chrono::steady_clock::now();
    bucket.pack_sum_of_messages(range, data, message);
    workspace_.stopwatch.add_since(&HostTimes::reduce, begin);
  }
  void reduce(Crossing& crossing, uint32_t step) override {
    crossing.await_contributions(step);
    const auto begin = std::chrono::steady_clock::now();
    crossing.reduce(step);
    workspace_.stopwatch.add_since(&HostTimes::reduce, begin);
  }
  void collect(uint32_t step, size_t slice, const std::byte* messages, int) override {
    const Steps& of = (*slices_)[slice];
    if (slice == 0) lanes_->begin_receiving(step);
    lanes_->receive(step, lanes_->offset(step, slice), messages, of.offset(step, of.parties()));
    if (slice + 1 == slices_->size()) lanes_->end_receiving(step);
  }
  void await_collected(uint32_t step) override { lanes_->await_received(step); }

  void finish() {
    lanes_->finish();
    give_residuals_back();
  }

 private:
  struct Lost {
    float* residual;    // of the GPU
    const float* here;  // what the sum lost of the same elements
    int64_t count;
  };

  // This rank owes what the sum of its host has lost, beside what its own contribution has: in the same units, the next sum
  // has both in it.
  void give_residuals_back() {
    if (lost_.empty()) return;
    Device& device = workspace_.device;
    int64_t count = 0;
    PieceTables tables;
    tables.begin();
    for (const Lost& lost : lost_) {
      DevicePiece piece;
      piece.source = lost.residual;
      piece.destination = lost.residual;
      piece.count = lost.count;
      piece.message_offset = piece.elements_offset = count * static_cast<int64_t>(sizeof(float));
      tables.add(piece);
      count += lost.count;
    }
    tables.upload(workspace_.uploads);
    const size_t bytes = static_cast<size_t>(count) * sizeof(float);
    const DeviceMemory there = workspace_.on_gpu.take(bytes);
    device.copy(workspace_.stream, there.get(), lost_memory_.get(), bytes);
    const std::byte* const messages[] = {nullptr, there.get()};
    DeviceReduction sum;
    sum.messages = messages;
    sum.to_destination = true;
    device.kernels().reduce(workspace_.stream, tables[0], sum);
  }

  HostWorkspace& workspace_;
  const PinnedWindow& window_;
  const double prescale_;
  std::unique_ptr<HostLanes> lanes_;
  const std::vector<Steps>* slices_ = nullptr;
  DeviceMemory lost_memory_;
  std::vector<Lost> lost_;
};

}  // namespace

int64_t host_allreduce_by_hierarchy(HostWorkspace& workspace, const PinnedWindow& window, std::span<const BucketTensor> tensors,
                                    const BucketReduction& reduction) {
  if (count_of(tensors) == 0) return 0;
  EndsOnGpu ends(workspace, window, reduction.prescale);
  const std::optional<int64_t> saturated = allreduce_by_hierarchy(workspace.context, tensors, reduction, false, ends);
  if (!saturated) return host_allreduce_by_exchange(workspace, tensors, reduction);
  ends.finish();
  return *saturated;
}

}  // namespace hvd
