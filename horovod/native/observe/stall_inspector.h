// Stalls: operations that some ranks have not asked for, and ranks that show no sign of life.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace hvd {

// Operations that some ranks have asked for and others have not: who is missing, said after a while, and again after each
// such while; and, if wanted, the end of a job that would wait for ever.
struct StalledOperation {
  std::string name;
  std::chrono::steady_clock::duration waiting;
  std::vector<int> missing_ranks;
};

struct StallReport {
  std::string warning;       // to be logged; empty if there is nothing (new) to say
  std::vector<int> missing;  // ranks that it is about, and by position what each has not asked for
  std::vector<std::string> names;
  bool must_shut_down = false;
};

// How long ranks wait for others before they say so, and before they end the job.
struct StallLimits {
  using Seconds = std::chrono::duration<double>;
  bool is_on = true;
  Seconds warn_after{60}, end_after{0};  // end: 0 = never; otherwise it is not shorter than the warning's
  std::string end_asked_by{};            // as "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=60", for errors
};

class StallInspector {
 public:
  using Seconds = StallLimits::Seconds;

  explicit StallInspector(const StallLimits& limits)
      : warn_after_(limits.warn_after), shut_down_after_(limits.end_after), end_asked_by_(limits.end_asked_by) {}

  StallReport inspect(std::chrono::steady_clock::time_point now, std::span<const StalledOperation> incomplete);

 private:
  const Seconds warn_after_, shut_down_after_;
  const std::string end_asked_by_;
  std::chrono::steady_clock::time_point last_warning_{};
};

// ---- silence --------------------------------------------------------------------------------------------------------

// Ranks that show no sign of life while this one waits for them: stopped, stuck in the system, or lost with their host. Said
// after a while, and again after each such while; and, if wanted, the end of waiting that would last for ever.
//
// A rank that works, however slowly, is not silent, nor is anybody while anything moves. What ranks have not asked for is the
// stall inspector's.
struct SignOfLife {
  int rank;
  uint64_t sign;  // another number than before: it is alive
};

struct SilenceReport {
  std::vector<int> silent;  // for as long as a warning takes; the longest first
  StallLimits::Seconds longest{0};
  bool is_due = false;  // there is something new to say
  bool must_end = false;
};

class SilenceInspector {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  explicit SilenceInspector(const StallLimits& limits);

  // Whether it is time to look again: often enough for the limits, and so rarely that asking ranks costs nothing.
  bool is_due(TimePoint now) const { return is_on_ && now - last_look_ >= period_; }
  // `awaited`: the ranks that this one waits for, none if it does not wait. `moved`: another number than before if anything
  // has got further.
  SilenceReport inspect(TimePoint now, std::span<const SignOfLife> awaited, uint64_t moved);
  // As of the last look, of those awaited then.
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

  // Time passes only while this rank looks: one that was itself stopped has heard nobody, and accuses nobody.
  Duration watched_{0}, last_warning_{0};
  TimePoint last_look_{};
  uint64_t moved_ = 0;
  std::map<int, Heard> heard_;
};

}  // namespace hvd
