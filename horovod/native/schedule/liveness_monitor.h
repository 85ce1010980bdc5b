// Watches the ranks for which this rank waits, inside a collective or for rank 0's response. Warns of silent ranks, and gives
// them up at the limit. Engine thread only.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <vector>

#include "base/log.h"
#include "observe/stall_inspector.h"
#include "schedule/process_sets.h"
#include "schedule/rank_gpu.h"
#include "transport/transport.h"

namespace hvd {

class LivenessMonitor {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // All arguments outlive it.
  LivenessMonitor(Transport& transport, const ProcessSets& sets, const InFlight& in_flight, const StallLimits& limits,
                  const Log& log);

  // Marks the scope in which the rank carries out an operation.
  class Work {
   public:
    Work(LivenessMonitor& liveness, std::span<const Agreed> together) : liveness_(liveness) { liveness_.under_way_ = together; }
    ~Work() { liveness_.under_way_ = {}; }
    Work(const Work&) = delete;

   private:
    LivenessMonitor& liveness_;
  };

  bool is_due(TimePoint now) const { return inspector_.is_due(now); }
  // Both throw InternalError if a rank has been silent for too long.
  // While the transport waits; a no-op unless an inspection is due.
  void look_inside(TimePoint now);
  // Between operations, when an inspection is due. `is_leaving`: this rank has announced its shutdown.
  void look_between(TimePoint now, bool is_leaving);

  // On the coordinator, when a stall ends the job: a sentence about the missing ranks that are silent, or "".
  std::string accuse(std::span<const StalledOperation> incomplete) const;
  int lost() const { return lost_; }  // the rank given up, or kNoRank

 private:
  SilenceReport inspect(TimePoint now, const std::vector<int>& awaited);
  void warn_or_end(const SilenceReport& report, const std::string& doing);
  std::string described(std::span<const int> ranks) const;
  std::vector<int> all_others() const;
  std::vector<int> missing(TimePoint now) const;
  std::string announced() const;

  // Constant after construction.
  Transport& transport_;
  const ProcessSets& sets_;
  const InFlight& in_flight_;
  const StallLimits limits_;
  const Log& log_;

  SilenceInspector inspector_;
  std::span<const Agreed> under_way_;
  int lost_ = kNoRank;
};

}  // namespace hvd
