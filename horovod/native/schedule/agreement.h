// Checks that all ranks request the same operations, and in one order if they have promised that (EngineContext::in_order).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "schedule/request.h"

namespace hvd {

struct RankRequest {
  int rank;  // in the job
  const Request* request;
};

// The error for every rank, if the `requests` of all ranks under one name cannot be carried out together: the tensor, each
// rank's value, and the remedy.
Failure disagreement(std::span<const RankRequest> requests);

// Checks that ranks keep the order that they promised. A place is an index in the sequence of a rank's requests.
class OrderCheck {
 public:
  struct Place {
    std::vector<std::string> names;  // by position in the process set; "" for a rank that has not reached this place
    size_t count = 0;                // of ranks that have reached it
    bool is_begun = false;           // some rank has begun its operation here before rank 0's response
    bool differs = false;            // known names differ
  };

  explicit OrderCheck(size_t ranks) : next_(ranks, 0) {}

  // Adds the next request of the rank at `position`. An unknown name, "", agrees with all.
  void add(size_t position, const std::string& name, bool is_begun);
  // Places with different names that all ranks have reached since the last call, or at which some rank has begun its operation.
  std::vector<Place> take_differing();

 private:
  std::deque<Place> places_;    // not reached by all ranks
  uint64_t first_ = 0;          // index of places_.front()
  std::vector<uint64_t> next_;  // by position: index of the rank's next request
};

// Operations that some ranks carry out before all ranks have requested them, on the coordinator. A rank begins only operations
// with known ids, and only while all requests that it has not begun are answered.
struct BegunBatch {
  std::vector<uint32_t> ids;  // carried out together
  std::vector<bool> by;       // by position: whether the rank has begun it
};

class BegunBatches {
 public:
  explicit BegunBatches(size_t ranks) : ranks_(ranks) {}

  // Adds the rank's next batch. False if other ranks' batch at this place has other ids.
  bool add(size_t position, std::span<const uint32_t> ids);
  bool is_empty() const { return batches_.empty(); }
  const BegunBatch& first() const { return batches_.front(); }
  void remove_first() { batches_.pop_front(); }

 private:
  const size_t ranks_;
  std::deque<BegunBatch> batches_;
};

}  // namespace hvd
