#include "collective/carried_steps.h"

#include <algorithm>
#include <numeric>

namespace hvd {
namespace {

constexpr int64_t divided_up(int64_t x, int64_t by) { return (x + by - 1) / by; }

}  // namespace

CarriedSteps::CarriedSteps(const std::vector<int64_t>& longest_slices, int64_t step_elements) {
  const int64_t all = std::accumulate(longest_slices.begin(), longest_slices.end(), int64_t{0});
  if (step_elements > 0) count_ = static_cast<size_t>(std::max<int64_t>(1, divided_up(all, step_elements)));
  int64_t needed = 1;
  for (const int64_t count : longest_slices) {
    const int64_t even = divided_up(count, static_cast<int64_t>(count_));
    elements_.push_back(std::max<int64_t>(1, divided_up(even, Tiles::kRun)) * Tiles::kRun);
    needed = std::max(needed, divided_up(count, elements_.back()));
  }
  count_ = static_cast<size_t>(needed);
}

}  // namespace hvd
