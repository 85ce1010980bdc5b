// Whether all ranks ask for the same thing, and in one order where they have promised that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "schedule/request.h"

namespace hvd {

// One rank's request; ranks by their number in the job.
struct RankRequest {
  int rank;
  const Request* request;
};

// `requests` of all ranks that take part, all of one name. None if they can be carried out together, else an error for
// every rank: which tensor, which ranks ask for what, and what to do.
Failure disagreement(std::span<const RankRequest> requests);

// Whether ranks that promised to ask for the same operations in one order do: their requests, counted by rank.
class OrderCheck {
 public:
  struct Place {
    std::vector<std::string> names;  // by position in the process set; "" of a rank that has not come here
    size_t count = 0;                // of ranks that have
    bool is_begun = false;           // some rank does not wait for the others to come here
    bool differs = false;            // of names that are known
  };

  explicit OrderCheck(size_t ranks) : next_(ranks, 0) {}

  // The next request of the rank at a position. One whose name is not known, "", agrees with all.
  void add(size_t position, const std::string& name, bool is_begun);
  // Of places where operations are begun, or that all ranks have come to since, those where names differ.
  std::vector<Place> take_differing();

 private:
  std::deque<Place> places_;    // that not all ranks have come to
  uint64_t first_ = 0;          // the number of the first of them
  std::vector<uint64_t> next_;  // by position
};

// On the coordinator, where ranks have promised one order: what some of them carry out already, before all have asked for it.
// Ranks begin only what all have agreed on before, while nothing that they could not begin is unanswered.
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
