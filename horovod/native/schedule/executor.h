// Carries out what a process set's ranks have agreed on: chooses the collective, runs it, counts it. Engine thread only.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/log.h"
#include "collective/allreduce.h"
#include "collective/context.h"
#include "observe/counters.h"
#include "observe/listener.h"
#include "schedule/draw_keys.h"
#include "schedule/handles.h"
#include "schedule/submission.h"

namespace hvd {

// An agreed submission and what the verdict says about it.
struct Agreed {
  Submission submission;
  std::vector<int64_t> rows;  // allgather: first dimensions, tensor by tensor and in that by rank; join: the last rank
};

class Executor {
 public:
  // `ranks` are the group's by their number in the job; `label` precedes names shown to listeners.
  Executor(RankGroup group, std::vector<int> ranks, std::string label, SimdLevel simd, const RouteRules& route_rules,
           Counters& counters, const Log& log, std::vector<Listener*> listeners);

  // Several are one bucket. What the operation leaves behind is the same for each of them.
  Result run(std::span<const Agreed> together);

 private:
  Result carry_out(std::span<const Agreed> together);
  // An operation's tensors of one dtype, and the place of each among all of its tensors.
  std::vector<std::pair<BucketTensor, size_t>> tensors_of(const Agreed& agreed, DType dtype);
  // Of the tensors of one dtype.
  void allreduce(std::span<const Agreed> together, DType dtype);
  void reducescatter(std::span<const Agreed> together, DType dtype);
  Result allgather(const Agreed& agreed);
  void broadcast(const Agreed& agreed);
  Result alltoall(const Agreed& agreed);
  void count_dropped(std::span<const Agreed> together);
  void count(std::span<const Agreed> together, std::chrono::steady_clock::time_point start,
             std::chrono::nanoseconds cpu_start);

  // Constant after construction.
  const std::vector<int> ranks_;
  const std::string label_;
  const RouteRules route_rules_;
  Counters& counters_;
  const Log& log_;
  const std::vector<Listener*> listeners_;

  CollectiveContext context_;
  DrawKeys draw_keys_;
};

}  // namespace hvd
