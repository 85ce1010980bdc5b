// Stalls: operations that only some ranks have requested, and ranks that show no sign of life. Both inspectors warn after a
// time, and again after each such time. If a limit is set, they end the job.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace hvd {

// An operation that some ranks have requested, and others have not.
struct StalledOperation {
  std::string name;
  std::chrono::steady_clock::duration waiting;
  std::vector<int> missing_ranks;
};

struct StallReport {
  std::string warning;       // for the log; empty if none is due
  std::vector<int> missing;  // missing ranks, and by position the operations that each has not requested
  std::vector<std::string> names;
  bool must_shut_down = false;
};

// The times for which ranks wait for others before they warn, and before they end the job.
struct StallLimits {
  using Seconds = std::chrono::duration<double>;
  bool is_on = true;
  Seconds warn_after{60}, end_after{0};  // end_after is 0 (never), or at least warn_after
  std::string end_asked_by{};            // origin of end_after, for errors: "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=60"
};

class StallInspector {
 public:
  using Seconds = StallLimits::Seconds;

  explicit StallInspector(const StallLimits& limits) : limits_(limits) {}

  StallReport inspect(std::chrono::steady_clock::time_point now, std::span<const StalledOperation> incomplete);

 private:
  const StallLimits limits_;
  std::chrono::steady_clock::time_point last_warning_{};
};

// ---- silence --------------------------------------------------------------------------------------------------------

// A rank is silent if it shows no sign of life while this rank waits for it: it was stopped, is stuck in the system, or its
// host is lost. A slow rank is not silent, and no rank is silent while transfers or GPU operations proceed.
struct SignOfLife {
  int rank;
  uint64_t sign;  // a changed number means that the rank is alive
};

struct SilenceReport {
  std::vector<int> silent;  // ranks that are silent for warn_after or longer, the longest silence first
  StallLimits::Seconds longest{0};
  bool is_due = false;  // a warning is due
  bool must_end = false;
};

class SilenceInspector {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  explicit SilenceInspector(const StallLimits& limits);

  // The period suits the limits, and is long enough that asking ranks costs nothing.
  bool is_due(TimePoint now) const { return is_on_ && now - last_look_ >= period_; }
  // `awaited`: the ranks for which this rank waits, if it waits. `moved`: a changed number means that some work proceeded.
  SilenceReport inspect(TimePoint now, std::span<const SignOfLife> awaited, uint64_t moved);
  // The ranks awaited at the last inspection that had been silent for that time.
  std::vector<int> silent_for(StallLimits::Seconds time) const;

 private:
  using Duration = TimePoint::duration;
  struct Heard {
    uint64_t sign;
    Duration at;
  };

  // Constant after construction.
  const bool is_on_;
  const Duration warn_after_, end_after_;  // end: 0 = never
  const Duration period_;

  // Time in which this rank looked. A rank that was itself stopped must not take others for silent.
  Duration watched_{0}, last_warning_{0};
  TimePoint last_look_{};
  uint64_t moved_ = 0;
  std::map<int, Heard> heard_;
};

}  // namespace hvd
