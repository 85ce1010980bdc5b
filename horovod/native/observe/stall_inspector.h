// Operations that some ranks have asked for and others have not: who is missing, said after a while, and again after each
// such while; and, if wanted, the end of a job that would wait for ever.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <vector>

namespace hvd {

struct StalledOperation {
  std::string name;
  std::chrono::steady_clock::duration waiting;
  std::vector<int> missing_ranks;
};

struct StallReport {
  std::string warning;  // to be logged; empty if there is nothing (new) to say
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

}  // namespace hvd
