// Everything that watches one rank's engine: the timeline, and on rank 0 the stall inspector.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/settings.h"
#include "observe/stall_inspector.h"
#include "observe/timeline.h"

namespace hvd {

class Observers {
 public:
  Observers(const Settings& settings, int rank, const Log& log);

  const StallLimits& stall_limits() const { return stall_limits_; }
  std::vector<Listener*> listeners() const;
  void on_idle();

  // Any thread. On rank 0; nothing elsewhere. Throw InvalidArgument unless HOROVOD_TIMELINE was set. See Timeline.
  void start_timeline(const std::string& path, bool mark_cycles, bool continues);
  void stop_timeline();
  // Any thread. In the timeline, if one is being written.
  void note_span(const std::string& name, std::chrono::steady_clock::time_point begin,
                 std::chrono::steady_clock::time_point end, const std::string& arguments);

  // Whether it is time to look for stalled operations again.
  bool is_inspection_due(std::chrono::steady_clock::time_point now);
  // Logs what there is to say, and returns it.
  StallReport inspect(std::chrono::steady_clock::time_point now, std::span<const StalledOperation> incomplete);

 private:
  // Constant after construction.
  const Log& log_;
  const bool may_have_timeline_;
  const StallLimits stall_limits_;
  const bool inspects_;
  std::unique_ptr<Timeline> timeline_;  // on rank 0, if HOROVOD_TIMELINE is set

  // Engine thread only.
  StallInspector stall_inspector_;
  std::chrono::steady_clock::time_point last_inspection_{};
};

}  // namespace hvd
