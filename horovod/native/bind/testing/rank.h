// The state that the parts of an engine share on one rank, without a thread. A test makes one part over it and drives that.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/settings.h"
#include "bind/testing/testing.h"
#include "observe/observers.h"
#include "schedule/backward_passes.h"
#include "schedule/handles.h"
#include "schedule/liveness_monitor.h"
#include "schedule/process_sets.h"
#include "schedule/rank_gpu.h"
#include "schedule/result_memory.h"
#include "schedule/submissions.h"

namespace hvd::testing {

struct Rank {
  // The world outlives it.
  Rank(World& world, const Settings& given);
  Rank(const Rank&) = delete;

  Transport& transport;
  Settings settings;
  const Log log;
  Observers observers;
  RankGpu gpu;
  InFlight in_flight;
  const std::shared_ptr<ResultMemory> results = std::make_shared<ResultMemory>();
  ProcessSets sets;
  LivenessMonitor liveness;
  HandleTable handles;
  Submissions submissions;
  BackwardPasses passes;
};

using OfSet = std::pair<int, Submission>;  // id of the process set, submission

// Settles a caller's submission, as the engine does.
inline Submitted submitted_of(const Rank& rank, int set, Submission submission) {
  const ProcessSets::Pointer found = rank.sets.find(set);
  settle(&submission, found->ranks());
  return {found, std::move(submission)};
}

// A failure with that text.
inline Failure failure_of(const std::string& why) { return Failure::of(std::runtime_error(why)); }

}  // namespace hvd::testing
