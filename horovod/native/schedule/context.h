// The context that all process sets of an engine share, and that of an executor of one of them.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/settings.h"
#include "base/simd.h"
#include "collective/context.h"
#include "collective/layout.h"
#include "collective/plan.h"
#include "observe/counters.h"
#include "observe/listener.h"
#include "schedule/draw_keys.h"
#include "schedule/submission.h"
#include "transport/transport.h"

namespace hvd {

class InFlight;
class RankGpu;
class ResultMemory;

// What all process sets of an engine share. The engine owns it, and outlives them.
struct EngineContext {
  Transport& transport;
  const Settings& settings;
  const Log& log;
  std::vector<Listener*> listeners;
  SimdLevel simd;
  RankGpu& gpu;
  InFlight& in_flight;
  ResultMemory& results;
  // All ranks promise to ask for the same operations in one order, and are told where they do not. What they have agreed on
  // before they begin before all have asked for it again, and give out when all have.
  bool in_order;
};

// ---- submissions as collectives take them ---------------------------------------------------------------------------

// What becomes of its tensors, over `size` ranks.
BucketReduction reduction_of(const Submission& submission, DType dtype, int size);

// Its tensors of a dtype, each with its place in the group, for the rank of that number. Counts one more use of the
// name, or of the tensors' feedback, if the codec draws random numbers.
std::vector<std::pair<BucketTensor, size_t>> bucket_tensors_of(const Submission& submission, DType dtype, int rank,
                                                               DrawKeys& draw_keys);

// An agreed submission and what the response says about it.
struct Agreed {
  Submission submission;
  std::vector<int64_t> rows;  // allgather: first dimensions, tensor by tensor and in that by rank; join: the last rank
  bool is_completed = false;  // see Item
};

// The dtypes of a bucket, each once. Fused requests have one in common; only a group alone has several.
std::vector<DType> dtypes_in(std::span<const Agreed> together);
std::vector<size_t> bytes_of(std::span<const int64_t> rows, int64_t bytes_of_a_row);
size_t sum(const std::vector<size_t>& values);

// Where an allgather's tensors lie, each the rows of all ranks, in one piece of memory.
struct GatherLayout {
  std::vector<std::vector<size_t>> bytes;  // by tensor, by rank
  std::vector<size_t> offsets;             // by tensor
  size_t total = 0;
};
GatherLayout gather_layout(const Agreed& agreed, size_t ranks);

// ---- executors ------------------------------------------------------------------------------------------------------

// What an executor works with, be the tensors in CPU memory or on a GPU: agreed submissions as collectives take them, and
// what is counted and told of them. Engine thread only.
struct ExecutorContext {
  // `ranks` are the set's, by their number in the job; `label` precedes names shown to listeners.
  ExecutorContext(const EngineContext& engine, std::vector<int> ranks, std::string label, Counters& counters);

  // The tensors of one dtype, of all that are carried out together.
  std::vector<BucketTensor> tensors_of(std::span<const Agreed> together, DType dtype);
  // Of a reduce-scatter: for each rank the parts that it gets.
  std::vector<std::vector<BucketTensor>> parts_of(std::span<const Agreed> together, DType dtype);
  // A broadcast's root as the group numbers it.
  int root_of(const Agreed& agreed) const;

  void tune();  // takes the engine's settings, which may have changed
  std::vector<Listener*> listening() const;
  void count_dropped(std::span<const Agreed> together);
  void count(std::span<const Agreed> together, std::chrono::steady_clock::time_point start, std::chrono::nanoseconds cpu_start);

  const EngineContext engine;
  const std::vector<int> ranks;
  const std::string label;
  PlanRules plan_rules;
  Counters& counters;
  CollectiveContext collective;
  DrawKeys draw_keys;
};

}  // namespace hvd
