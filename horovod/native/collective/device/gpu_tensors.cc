#include "collective/device/gpu_tensors.h"

#include <chrono>
#include <cstring>
#include <utility>

#include "collective/device/device_pieces.h"

namespace hvd {
namespace {

// So that what a host sums is rounded by other random numbers than what the carrier itself has contributed to it.
constexpr uint64_t kKeyOfSums = 0xA5A5C3C39696F00Fu;

}  // namespace

void GpuTensors::begin(std::span<const Steps> groups) {
  groups_ = groups;
  lanes_ = std::make_unique<HostLanes>(workspace_, groups, prescale_);
}

void GpuTensors::send(uint32_t step, std::byte* messages, int) { lanes_->send(step, messages); }

void GpuTensors::compute(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  workspace_.stopwatch.add_since(&HostTimes::reduce, begin);
}

void GpuTensors::receive(uint32_t step, size_t group, int first, int last, const std::byte* messages, int) {
  const Steps& of = groups_[group];
  if (group == 0 && first == 0) lanes_->begin_receiving(step);
  const size_t offset = of.offset(step, first);
  lanes_->receive(step, lanes_->offset(step, group) + offset, messages, of.offset(step, last + 1) - offset);
  if (group + 1 == groups_.size() && last + 1 == of.parties()) lanes_->end_receiving(step);
}

size_t GpuTensors::deposit_offset(const Steps& group, uint32_t step, size_t bucket) const {
  return group.offset(step, static_cast<int>(bucket));
}

int64_t GpuTensors::elements_in_deposit(int64_t bytes, const BucketReduction& reduction) const {
  return elements_of(bytes, reduction);
}

// Groups lie one after the other there too.
void GpuTensors::deposit(uint32_t step, std::span<std::byte* const> groups) { lanes_->send(step, groups.front()); }

// What encoding the sum loses is kept here first: the residuals themselves are of the GPU, and begin at 0 here.
std::vector<BucketTensor> GpuTensors::sums_of(std::vector<BucketTensor> slice) {
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

void GpuTensors::sum(Bucket& bucket, Range range, Data data, std::byte* message) {
  compute([&] { bucket.pack_sum_of_messages(range, data, message); });
}

void GpuTensors::finish() {
  if (lanes_ == nullptr) return;  // there was nothing to reduce
  lanes_->finish();
  give_residuals_back();
}

// This rank owes what the sum of its host has lost, beside what its own contribution has: in the same units, the next sum
// has both in it.
void GpuTensors::give_residuals_back() {
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

}  // namespace hvd
