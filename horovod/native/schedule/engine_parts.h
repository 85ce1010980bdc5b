// The state that an engine's thread and its callers share. It has no thread: tests drive single parts of an engine over it.
#pragma once

#include <memory>

#include "base/log.h"
#include "base/settings.h"
#include "observe/observers.h"
#include "schedule/backward_passes.h"
#include "schedule/handles.h"
#include "schedule/liveness_monitor.h"
#include "schedule/process_sets.h"
#include "schedule/rank_gpu.h"
#include "schedule/result_memory.h"
#include "schedule/submissions.h"
#include "transport/transport.h"

namespace hvd {

struct EngineParts {
  // The transport outlives it. `in_order`: see EngineContext.
  EngineParts(Transport& carrier, const Settings& given, bool in_order);
  EngineParts(const EngineParts&) = delete;

  Transport& transport;
  Settings settings;  // the engine's thread changes them; other threads read only settings that never change
  const Log log;
  Observers observers;
  RankGpu gpu;
  InFlight in_flight;  // the engine's thread only
  const std::shared_ptr<ResultMemory> results = std::make_shared<ResultMemory>();
  ProcessSets sets;
  LivenessMonitor liveness;  // the engine's thread only
  HandleTable handles;
  Submissions submissions;
  BackwardPasses passes;
};

}  // namespace hvd
