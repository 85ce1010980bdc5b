#include "collective/device/staged_tensors.h"

#include <chrono>
#include <cstring>
#include <utility>

#include "collective/device/device_pieces.h"

namespace hvd {
namespace {

// So that what a host sums is rounded by other random numbers than what the carrier itself has contributed to it.
constexpr uint64_t kKeyOfSums = 0xA5A5C3C39696F00Fu;

}  // namespace

void StagedTensors::begin(std::span<const Steps> groups, int) {
  groups_ = groups;
  buckets_.reserve(groups.size());
  for (const Steps& group : groups) buckets_.emplace_back(group, group.bucket(0).reduction(), workspace_.context);
  lanes_ = std::make_unique<HostLanes>(workspace_, groups, prescale_);
}

void StagedTensors::send(uint32_t step, std::byte* messages, int) { lanes_->send(step, messages); }

void StagedTensors::reduce(uint32_t step, size_t group, size_t bucket, Messages contributions, bool to_destination,
                           std::byte* result) {
  const auto begin = std::chrono::steady_clock::now();
  buckets_[group][bucket].reduce(groups_[group].range(step, bucket), contributions, to_destination, result);
  workspace_.stopwatch.add_since(&HostTimes::reduce, begin);
}

void StagedTensors::receive(uint32_t step, size_t group, int first, int last, const std::byte* messages, int) {
  const Steps& of = groups_[group];
  if (group == 0 && first == 0) lanes_->begin_receiving(step);
  const size_t offset = of.offset(step, first);
  lanes_->receive(step, lanes_->offset(step, group) + offset, messages, of.offset(step, last + 1) - offset);
  if (group + 1 == groups_.size() && last + 1 == of.parties()) lanes_->end_receiving(step);
}

size_t StagedTensors::send_offset(const Steps& group, uint32_t step, size_t bucket) const {
  return group.offset(step, static_cast<int>(bucket));
}

int64_t StagedTensors::elements_in_send_buffer(int64_t bytes, const BucketReduction& reduction) const {
  return elements_of(bytes, reduction);
}

// Groups lie one after the other there too.
void StagedTensors::fill_send_buffers(uint32_t step, std::span<std::byte* const> groups) { lanes_->send(step, groups.front()); }

// What encoding the sum loses is kept here first: the residuals themselves are of the GPU, and begin at 0 here.
void StagedTensors::begin_sends(int own, const BucketReduction& reduction) {
  if (own == Steps::kNobody) return;
  const Steps& of = groups_[static_cast<size_t>(own)];
  std::vector<std::vector<BucketTensor>> summed;
  int64_t kept = 0;
  for (size_t i = 0; i < of.buckets(); ++i) {
    summed.push_back(of.bucket(i).tensors());
    for (const BucketTensor& tensor : summed.back()) kept += tensor.sent.values ? tensor.count : 0;
  }
  const size_t bytes = static_cast<size_t>(kept) * sizeof(float);
  if (kept != 0) {
    lost_memory_ = workspace_.pinned.take(bytes);
    std::memset(lost_memory_.get(), 0, bytes);
  }
  auto* next = reinterpret_cast<float*>(lost_memory_.get());
  std::vector<Layout> layouts;
  for (std::vector<BucketTensor>& tensors : summed) {
    for (BucketTensor& tensor : tensors) {
      tensor.sent_key ^= kKeyOfSums;
      if (tensor.sent.values == nullptr) continue;
      lost_.push_back({tensor.sent.values, next, tensor.count});
      tensor.sent = {next, tensor.feedback->bound_of_sums()};
      next += tensor.count;
    }
    layouts.emplace_back(std::move(tensors), reduction);
  }
  summed_.emplace(of.like(std::move(layouts)));
  sums_.emplace(*summed_, reduction, workspace_.context);
}

void StagedTensors::sum(uint32_t step, size_t bucket, Messages data, std::byte* message) {
  const auto begin = std::chrono::steady_clock::now();
  (*sums_)[bucket].pack_sum_of_messages(summed_->range(step, bucket), data, message);
  workspace_.stopwatch.add_since(&HostTimes::reduce, begin);
}

int64_t StagedTensors::saturated() const {
  int64_t sum = sums_ ? sums_->saturated() : 0;
  for (const BucketsOf& group : buckets_) sum += group.saturated();
  return sum;
}

void StagedTensors::finish() {
  if (lanes_ == nullptr) return;  // there was nothing to reduce
  lanes_->finish();
  give_residuals_back();
}

// This rank owes what the sum of its host has lost, beside what its own contribution has: in the same units, the next sum
// has both in it.
void StagedTensors::give_residuals_back() {
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
