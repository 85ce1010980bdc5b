#include "collective/carried_messages.h"

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

}  // namespace hvd
