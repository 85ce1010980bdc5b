// What all process sets of an engine share. The engine owns it, and outlives them.
#pragma once

#include <vector>

#include "base/log.h"
#include "base/settings.h"
#include "base/simd.h"
#include "observe/listener.h"
#include "transport/transport.h"

namespace hvd {

class InFlight;
class RankGpu;
class ResultMemory;

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

}  // namespace hvd
