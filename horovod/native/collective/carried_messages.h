// What the messages of carried reductions (carried.h) look like.
//
//   message := part*     each at a multiple of kCarriedAlign bytes; between them, and up to the message's length, zeros
//   part    := message   of bucket.h, of the step's range of the part's bucket (gather), or of a slice of it
//
// The messages of an operation have one length on all ranks and in all steps, so that each rank knows what it will
// receive, and collectives of equal blocks can move them. A world of one has none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "collective/carried_steps.h"

namespace hvd {

constexpr size_t kCarriedAlign = 16;

enum class CarriedRoute { kGather, kScatter, kReducescatter };

// Of this rank in an operation.
struct CarriedPlace {
  int rank = 0;
  int size = 1;
  CarriedRoute route = CarriedRoute::kGather;

  // Into how many slices, each with its own message, the parts are cut; and which is reduced here.
  size_t slices() const { return route == CarriedRoute::kGather ? 1 : static_cast<size_t>(size); }
  size_t own() const { return route == CarriedRoute::kGather ? 0 : static_cast<size_t>(rank); }
  // Whether what is reduced here goes on to the others.
  bool sends_results() const { return route == CarriedRoute::kScatter; }
};

// By slice, and in that by part.
using CarriedSizes = std::vector<std::vector<size_t>>;

class CarriedLayout {
 public:
  // Bytes by step; no slices in a world of one.
  explicit CarriedLayout(std::vector<CarriedSizes> part_bytes);

  size_t message_bytes() const { return message_bytes_; }
  size_t offset(size_t step, size_t slice, size_t part) const { return offsets_[step][slice][part]; }
  // Offset and length of what no part fills.
  std::vector<std::pair<size_t, size_t>> gaps(size_t step, size_t slice) const;

 private:
  // Constant after construction.
  std::vector<CarriedSizes> part_bytes_, offsets_;
  size_t message_bytes_ = 0;
};

struct CarriedPlan {
  CarriedSteps steps;
  CarriedLayout layout;
};

// Of a part's bucket of a slice.
using BucketOf = std::function<const Layout&(size_t part, size_t slice)>;

CarriedPlan carried_plan(const CarriedPlace& place, size_t parts, int64_t step_elements, const BucketOf& bucket_of);

}  // namespace hvd
