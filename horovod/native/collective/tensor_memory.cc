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

}  // namespace hvd
