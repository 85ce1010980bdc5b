// On the coordinator, where ranks have promised one order: what some of them carry out already, before all have asked for it.
// Ranks begin only what all have agreed on before, while nothing that they could not begin is unanswered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

namespace hvd {

struct BegunBatch {
  std::vector<uint32_t> ids;  // go together
  std::vector<bool> by;       // by position in the process set: who has begun it
};

class BegunBatches {
 public:
  explicit BegunBatches(size_t ranks) : ranks_(ranks) {}

  // False if others have begun something else at this rank's turn.
  bool add(size_t position, std::span<const uint32_t> ids);
  bool is_empty() const { return batches_.empty(); }
  const BegunBatch& first() const { return batches_.front(); }
  void remove_first() { batches_.pop_front(); }

 private:
  const size_t ranks_;
  std::deque<BegunBatch> batches_;
};

}  // namespace hvd
