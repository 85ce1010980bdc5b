// Into which ranges the buckets of a carried reduction (carried.h) are cut: every step has about as much of each part, and
// so messages are equally long.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collective/layout.h"

namespace hvd {

class CarriedSteps {
 public:
  // Of parts' longest slices, together about `step_elements` in a step; 0: everything in one.
  CarriedSteps(const std::vector<int64_t>& longest_slices, int64_t step_elements);

  size_t count() const { return count_; }
  // Of a bucket of the part: empty where it has ended before.
  Range range(size_t step, size_t part, const Layout& bucket) const {
    const auto begin = static_cast<int64_t>(step) * elements_[part];
    return {bucket.cut(begin), bucket.cut(begin + elements_[part])};
  }

 private:
  // Constant after construction.
  size_t count_ = 1;
  std::vector<int64_t> elements_;  // by part: of a slice, in a step; multiples of Tiles::kRun
};

}  // namespace hvd
