// Carries out what was agreed: chooses the collective, runs it, counts it. Engine thread only.
#pragma once

#include <span>
#include <vector>

#include "base/log.h"
#include "collective/allreduce.h"
#include "collective/context.h"
#include "observe/counters.h"
#include "observe/listener.h"
#include "schedule/handles.h"
#include "schedule/submission.h"

namespace hvd {

// An agreed submission and what the verdict says about it.
struct Agreed {
  Submission submission;
  std::vector<int64_t> rows;  // allgather
};

class Executor {
 public:
  Executor(Transport& transport, SimdLevel simd, Counters& counters, const Log& log, std::vector<Listener*> listeners);

  // Several are one allreduce bucket. What the operation leaves behind is the same for each of them.
  Result run(std::span<const Agreed> together);

 private:
  Result carry_out(std::span<const Agreed> together);
  void allreduce(std::span<const Agreed> together);
  Result allgather(const Agreed& agreed);
  void broadcast(const Agreed& agreed);

  // Constant after construction.
  Counters& counters_;
  const Log& log_;
  const std::vector<Listener*> listeners_;

  CollectiveContext context_;
};

}  // namespace hvd
