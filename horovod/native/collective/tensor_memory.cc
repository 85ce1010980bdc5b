#include "collective/tensor_memory.h"

namespace hvd {

size_t TensorMemory::send_offset(const Steps& group, uint32_t step, size_t bucket) const {
  int64_t elements = 0;
  for (size_t before = 0; before < bucket; ++before) elements += group.range(step, before).count();
  return static_cast<size_t>(elements) * size_of(group.bucket(0).reduction().dtype);
}

int64_t TensorMemory::elements_in_send_buffer(int64_t bytes, const BucketReduction& reduction) const {
  return bytes / static_cast<int64_t>(size_of(reduction.dtype));
}

void CpuTensors::begin(std::span<const Steps> groups, int) {
  groups_ = groups;
  buckets_.reserve(groups.size());
  for (const Steps& group : groups) buckets_.emplace_back(group, group.bucket(0).reduction(), context_);
}

int64_t CpuTensors::saturated() const {
  int64_t sum = sums_ ? sums_->saturated() : 0;
  for (const BucketsOf& group : buckets_) sum += group.saturated();
  return sum;
}

// Advances transfers between two buckets.
void CpuTensors::send(uint32_t step, std::byte* messages, int left_out) {
  const Steps& group = groups_.front();
  for (size_t i = 0; i < group.buckets(); ++i) {
    const int party = static_cast<int>(i);
    if (party == left_out) continue;
    buckets_.front()[i].pack(group.range(step, i), messages + group.offset(step, party));
    if (context_.group.window() == nullptr) context_.group.progress();
  }
}

void CpuTensors::reduce(uint32_t step, size_t group, size_t bucket, Messages contributions, bool to_destination,
                        std::byte* result) {
  buckets_[group][bucket].reduce(groups_[group].range(step, bucket), contributions, to_destination, result);
}

void CpuTensors::receive(uint32_t step, size_t group, int first, int last, const std::byte* messages, int done) {
  const Steps& of = groups_[group];
  if (of.gather()) return reduce(step, group, 0, of.each(step, messages), true, nullptr);
  for (int party = first; party <= last; ++party) {
    const auto i = static_cast<size_t>(party);
    const std::byte* message = messages + (of.offset(step, party) - of.offset(step, first));
    if (party != done) buckets_[group][i].unpack(of.range(step, i), message);
  }
}

void CpuTensors::fill_send_buffers(uint32_t step, std::span<std::byte* const> groups) {
  for (size_t g = 0; g < groups.size(); ++g) {
    if (groups[g] == nullptr) continue;
    const Steps& of = groups_[g];
    for (size_t i = 0; i < of.buckets(); ++i) {
      buckets_[g][i].copy(of.range(step, i), groups[g] + send_offset(of, step, i));
    }
  }
}

void CpuTensors::begin_sends(int own, const BucketReduction& reduction) {
  if (own != Steps::kNobody) sums_.emplace(groups_[static_cast<size_t>(own)], reduction, context_);
}

void CpuTensors::sum(uint32_t step, size_t bucket, Messages data, std::byte* message) {
  (*sums_)[bucket].pack_sum(sums_->group().range(step, bucket), data, message);
}

}  // namespace hvd
