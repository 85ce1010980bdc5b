#include "schedule/begun.h"

#include <algorithm>

namespace hvd {

bool BegunBatches::add(size_t position, std::span<const uint32_t> ids) {
  auto batch = std::find_if(batches_.begin(), batches_.end(), [&](const BegunBatch& one) { return !one.by[position]; });
  if (batch == batches_.end()) {
    batches_.push_back({{ids.begin(), ids.end()}, std::vector<bool>(ranks_, false)});
    batch = std::prev(batches_.end());
  }
  batch->by[position] = true;
  return std::ranges::equal(batch->ids, ids);
}

}  // namespace hvd
