#include "collective/carried_messages.h"

#include <algorithm>

namespace hvd {

CarriedLayout::CarriedLayout(std::vector<CarriedSizes> part_bytes) : part_bytes_(std::move(part_bytes)) {
  for (const CarriedSizes& slices : part_bytes_) {
    CarriedSizes& of_slices = offsets_.emplace_back();
    for (const std::vector<size_t>& parts : slices) {
      std::vector<size_t>& offsets = of_slices.emplace_back();
      size_t end = 0;
      for (const size_t bytes : parts) {
        offsets.push_back(end);
        end += (bytes + kCarriedAlign - 1) / kCarriedAlign * kCarriedAlign;
      }
      message_bytes_ = std::max(message_bytes_, end);
    }
  }
}

std::vector<std::pair<size_t, size_t>> CarriedLayout::gaps(size_t step, size_t slice) const {
  std::vector<std::pair<size_t, size_t>> all;
  const std::vector<size_t>& bytes = part_bytes_[step][slice];
  for (size_t part = 0; part < bytes.size(); ++part) {
    const size_t end = offset(step, slice, part) + bytes[part];
    const size_t next = part + 1 < bytes.size() ? offset(step, slice, part + 1) : message_bytes_;
    if (next != end) all.emplace_back(end, next - end);
  }
  return all;
}

CarriedPlan carried_plan(const CarriedPlace& place, size_t parts, int64_t step_elements, const BucketOf& bucket_of) {
  std::vector<int64_t> longest(parts);
  for (size_t part = 0; part < parts; ++part) {
    for (size_t slice = 0; slice < place.slices(); ++slice) {
      longest[part] = std::max(longest[part], bucket_of(part, slice).count());
    }
  }
  const size_t slices = place.size == 1 ? 0 : place.slices();
  const CarriedSteps steps(longest, place.size == 1 ? 0 : step_elements);
  std::vector<CarriedSizes> bytes(steps.count(), CarriedSizes(slices));
  for (size_t step = 0; step < steps.count(); ++step) {
    for (size_t slice = 0; slice < slices; ++slice) {
      for (size_t part = 0; part < parts; ++part) {
        const Layout& bucket = bucket_of(part, slice);
        bytes[step][slice].push_back(static_cast<size_t>(bucket.message_bytes(steps.range(step, part, bucket))));
      }
    }
  }
  return {steps, CarriedLayout(std::move(bytes))};
}

}  // namespace hvd
