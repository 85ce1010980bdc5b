// The state that an engine's parts share on one rank. A test makes one part upon it, and drives that by itself. No thread.
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

using OfSet = std::pair<int, Submission>;  // with the id of its process set

// As an engine makes it of what a caller gives it.
inline Submitted submitted_of(const Rank& rank, int set, Submission submission) {
  const ProcessSets::Pointer found = rank.sets.find(set);
  settle(&submission, found->ranks());
  return {found, std::move(submission)};
}

// Of something that has gone wrong elsewhere.
inline Failure failure_of(const std::string& why) { return Failure::of(std::runtime_error(why)); }

}  // namespace hvd::testing
