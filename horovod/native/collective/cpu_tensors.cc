#include "collective/cpu_tensors.h"

namespace hvd {

void CpuTensors::send(uint32_t step, std::byte* messages, int left_out) {
  const Steps& group = groups_.front();
  for (size_t i = 0; i < group.buckets(); ++i) {
    const int party = static_cast<int>(i);
    if (party != left_out) group.bucket(i).pack(group.range(step, i), messages + group.offset(step, party));
  }
}

void CpuTensors::receive(uint32_t step, size_t group, int first, int last, const std::byte* messages, int done) {
  const Steps& of = groups_[group];
  if (of.gather()) return of.reduce(step, messages);
  for (int party = first; party <= last; ++party) {
    const auto i = static_cast<size_t>(party);
    const std::byte* message = messages + (of.offset(step, party) - of.offset(step, first));
    if (party != done) of.bucket(i).unpack(of.range(step, i), message);
  }
}

size_t CpuTensors::deposit_offset(const Steps& group, uint32_t step, size_t bucket) const {
  int64_t elements = 0;
  for (size_t before = 0; before < bucket; ++before) elements += group.range(step, before).count();
  return static_cast<size_t>(elements) * size_of(group.bucket(0).reduction().dtype);
}

int64_t CpuTensors::elements_in_deposit(int64_t bytes, const BucketReduction& reduction) const {
  return bytes / static_cast<int64_t>(size_of(reduction.dtype));
}

void CpuTensors::deposit(uint32_t step, std::span<std::byte* const> groups) {
  for (size_t g = 0; g < groups.size(); ++g) {
    if (groups[g] == nullptr) continue;
    const Steps& of = groups_[g];
    for (size_t i = 0; i < of.buckets(); ++i) {
      of.bucket(i).copy(of.range(step, i), groups[g] + deposit_offset(of, step, i));
    }
  }
}

}  // namespace hvd
