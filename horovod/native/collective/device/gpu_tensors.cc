#include "collective/device/gpu_tensors.h"

#include <algorithm>

#include "base/memory.h"

namespace hvd {

void GpuTensors::begin(std::span<const Steps> groups, int self) {
  groups_ = groups;
  self_ = self;
}

void GpuTensors::begin_sends(int own, const BucketReduction& reduction) {
  has_sends_ = true;
  has_sums_ = own != Steps::kNobody;
  if (has_sums_) own_ = static_cast<size_t>(own);
  over_ranks_ = reduction;
}

const GpuTensors::StepTables& GpuTensors::tables(uint32_t step) {
  if (steps_.empty()) {
    uint32_t count = 0;
    for (const Steps& group : groups_) count = std::max(count, group.count());
    for (uint32_t each = 0; each < count; ++each) steps_.push_back(made(each));
    pieces_.upload(workspace_.uploads());
  }
  return steps_[step];
}

GpuTensors::StepTables GpuTensors::made(uint32_t step) {
  StepTables made;
  for (const Steps& group : groups_) {
    made.messages.push_back(pieces_.begin());
    for (size_t i = 0; i < group.buckets(); ++i) {
      const int party = static_cast<int>(i);
      const bool is_in_place = !group.gather() && party == self_ && group.bucket(i).reduction().codec == nullptr;
      const auto offset = static_cast<int64_t>(group.offset(step, party));
      if (!is_in_place) add_pieces(group.bucket(i), group.range(step, i), {.message = offset}, pieces_);
    }
  }
  const Steps& own = groups_[own_];
  const auto self = static_cast<size_t>(self_);
  made.results = pieces_.begin();
  if (!own.gather()) add_pieces(own.bucket(self), own.range(step, self), {.stage = Stage::kResult}, pieces_);
  made.sends = pieces_.begin();
  size_t at = 0;
  for (size_t g = 0; has_sends_ && g < groups_.size(); ++g) {
    if (has_sums_ && g == own_) continue;
    const Steps& group = groups_[g];
    for (size_t i = 0; i < group.buckets(); ++i) {
      const auto offset = static_cast<int64_t>(at + send_offset(group, step, i));
      add_pieces(group.bucket(i), group.range(step, i), {.message = offset, .is_of_elements = true}, pieces_);
    }
    at += aligned(send_offset(group, step, group.buckets()));
  }
  for (size_t i = 0; has_sums_ && i < own.buckets(); ++i) {
    made.sums.push_back(pieces_.begin());
    add_pieces(own.bucket(i), own.range(step, i), {}, pieces_);
  }
  return made;
}

void GpuTensors::send(uint32_t step, std::byte* messages, int) {
  const PieceTable table = pieces_[tables(step).messages.front()];
  if (table.count == 0) return;
  const BucketReduction& reduction = groups_.front().bucket(0).reduction();
  if (reduction.codec) {
    kernels().encode(workspace_.stream(), codec_of(reduction), reduction.dtype, table, reduction.prescale, messages);
  } else {
    kernels().pack(workspace_.stream(), reduction.dtype, table, 1.0, messages);
  }
}

void GpuTensors::reduce(uint32_t step, size_t group, size_t bucket, Messages contributions, bool to_destination,
                        std::byte* result) {
  const StepTables& of_step = tables(step);
  const PieceTable table = pieces_[groups_[group].gather() ? of_step.messages[group] : of_step.results];
  if (table.count == 0) return;
  const BucketReduction& reduction = groups_[group].bucket(bucket).reduction();
  DeviceReduction kernel = summing(reduction, codec_of(reduction), contributions);
  kernel.to_destination = to_destination;
  kernel.result = result;
  kernels().reduce(workspace_.stream(), table, kernel);
}

void GpuTensors::receive(uint32_t step, size_t group, int, int, const std::byte* messages, int) {
  const Steps& of = groups_[group];
  if (of.gather()) return reduce(step, group, 0, of.each(step, messages), true, nullptr);
  const PieceTable table = pieces_[tables(step).messages[group]];
  if (table.count == 0) return;
  const BucketReduction& reduction = of.bucket(0).reduction();
  if (reduction.codec) {
    kernels().decode(workspace_.stream(), codec_of(reduction), reduction.dtype, table, messages);
  } else {
    kernels().unpack(workspace_.stream(), reduction.dtype, table, 1.0, 1.0, messages);
  }
}

// The send buffers of the groups lie one after the other.
void GpuTensors::fill_send_buffers(uint32_t step, std::span<std::byte* const> groups) {
  const PieceTable table = pieces_[tables(step).sends];
  if (table.count == 0) return;
  std::byte* const first = *std::find_if(groups.begin(), groups.end(), [](const std::byte* group) { return group != nullptr; });
  kernels().pack(workspace_.stream(), over_ranks_.dtype, table, 1.0, first);
}

void GpuTensors::sum(uint32_t step, size_t bucket, Messages data, std::byte* message) {
  const PieceTable table = pieces_[tables(step).sums[bucket]];
  if (table.count == 0) return;
  DeviceReduction kernel = summing(over_ranks_, {}, data);
  kernel.result = message;
  kernels().reduce(workspace_.stream(), table, kernel);
}

}  // namespace hvd
