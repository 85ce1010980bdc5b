// The observers of a rank's engine; on rank 0, a timeline and the stall inspector.
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

  // Any thread. No-ops on other ranks than rank 0. Throw InvalidArgument unless HOROVOD_TIMELINE was set. See Timeline.
  void start_timeline(const std::string& path, bool mark_cycles, bool continues);
  void stop_timeline();
  // Any thread. Writes a span to the timeline, if there is one.
  void note_span(const std::string& name, std::chrono::steady_clock::time_point begin,
                 std::chrono::steady_clock::time_point end, const std::string& arguments);

  // Whether to look for stalled operations now; true at most once every time_limits::kStallLook.
  bool is_inspection_due(std::chrono::steady_clock::time_point now);
  // Returns the report and logs its warning.
  StallReport inspect(std::chrono::steady_clock::time_point now, std::span<const StalledOperation> incomplete);

 private:
  void require_timeline(const char* call) const;

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
