// The context of an engine, and that of an executor of one of its process sets.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <unordered_map>
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
#include "schedule/submission.h"
#include "transport/transport.h"

namespace hvd {

class InFlight;
class RankGpu;
class ResultMemory;

// The objects that all process sets of an engine share. The engine owns them and outlives the sets.
struct EngineContext {
  Transport& transport;
  const Settings& settings;
  const Log& log;
  std::vector<Listener*> listeners;
  SimdLevel simd;
  RankGpu& gpu;
  InFlight& in_flight;
  ResultMemory& results;
  // All ranks promise to request the same operations in one order; a violation is an error. So a rank *begins* operations that
  // all have agreed on before: it carries them out at once, and gives out the results when all ranks have requested them.
  bool in_order;
};

// ---- submissions as collectives take them ---------------------------------------------------------------------------

// The reduction of its tensors of the dtype, over `size` ranks.
BucketReduction reduction_of(const Submission& submission, DType dtype, int size);

// Keys of the random numbers of stochastic codecs. Each reduction of a name has another key. Every run of a program has the
// same keys, independent of fusion and scheduling.
class DrawKeys {
 public:
  // The key of the name's next reduction.
  uint64_t next(const std::string& name);

 private:
  static constexpr size_t kMostNames = 65536;  // then all are forgotten, so that scripts with ever new names do not fill memory
  uint64_t epoch_ = 0;                         // how often that happened, so that keys do not repeat
  std::unordered_map<std::string, uint64_t> uses_;
};

// Its tensors of the dtype, each with its index in the group, for the rank of that number in the set. If the codec is
// stochastic, counts one more use of the name, or of the tensors' feedback.
std::vector<std::pair<BucketTensor, size_t>> bucket_tensors_of(const Submission& submission, DType dtype, int rank,
                                                               DrawKeys& draw_keys);

// A submission that all ranks agreed on, with the facts of the response.
struct Agreed {
  Submission submission;
  std::vector<int64_t> rows;  // allgather: first dimensions, by tensor, then by rank; join: the last rank
  bool is_completed = false;  // see Item
};

// The dtypes of a bucket, each once. Fused requests have one dtype; only an unfused group may have several.
std::vector<DType> dtypes_in(std::span<const Agreed> together);
std::vector<size_t> bytes_of(std::span<const int64_t> rows, int64_t bytes_of_a_row);
size_t sum(const std::vector<size_t>& values);

// The layout of an allgather's results in one block of memory.
struct GatherLayout {
  std::vector<std::vector<size_t>> bytes;  // by tensor, then by rank
  std::vector<size_t> offsets;             // by tensor, in bytes
  size_t total = 0;
};
GatherLayout gather_layout(const Agreed& agreed, size_t ranks);

// ---- executors ------------------------------------------------------------------------------------------------------

// The context of an executor: converts agreed submissions for collectives, and counts them. Engine thread only.
struct ExecutorContext {
  // `ranks`: of the set, numbered in the job. `label` precedes names shown to listeners.
  ExecutorContext(const EngineContext& engine, std::vector<int> ranks, std::string label, Counters& counters);

  // The tensors of the dtype of all submissions.
  std::vector<BucketTensor> tensors_of(std::span<const Agreed> together, DType dtype);
  // For a reduce-scatter: by rank, the parts that it receives.
  std::vector<std::vector<BucketTensor>> parts_of(std::span<const Agreed> together, DType dtype);
  // The root of a broadcast, as its position in the set.
  int root_of(const Agreed& agreed) const;

  void tune();  // reads the engine's settings again
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
