// The ways in which ranks can carry out an allreduce of tensors in memory of the CPU, one row for each: plan.cc chooses among
// them, allreduce.cc runs what was chosen. They are drawn in docs/architecture.md.
#pragma once

#include <cstdint>
#include <span>

#include "collective/context.h"
#include "collective/plan.h"
#include "collective/tensor_memory.h"

namespace hvd {

struct AllreducePattern {
  Route route;          // whose name is the pattern's
  const char* meaning;  // in one or two plain sentences, for people
  Algorithm algorithm;  // what HOROVOD_ALLREDUCE_ALGORITHM calls it
  // Whether it is for ranks in these places, and for these tensors.
  bool (*serves)(const PlanFacts& facts);
  // What it will take: rounds of messages, and the longer of moving the bytes and working on them.
  double (*seconds)(bool gathers, const PlanFacts& facts, const LinkCosts& costs);
  // Returns how many finite values a codec's range cut off.
  int64_t (*run)(CollectiveContext& context, std::span<const BucketTensor> tensors, const BucketReduction& reduction,
                 bool gathers, TensorMemory& memory);
};

// Of two that share a function, which is told whether the route gathers, the one that does stands first.
std::span<const AllreducePattern> allreduce_patterns();

}  // namespace hvd
