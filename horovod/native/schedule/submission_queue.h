// Submissions that have not been announced yet, and when they ought to be. No lock of its own: the engine's guards it.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "base/settings.h"
#include "schedule/process_sets.h"

namespace hvd {

struct Queued {
  ProcessSets::Pointer set;
  Submission submission;
};

class SubmissionQueue {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  explicit SubmissionQueue(const Settings& settings) { tune(settings); }
  void tune(const Settings& settings);

  bool is_empty() const { return queue_.empty(); }
  void add(Queued queued, TimePoint now);
  // When to announce what is here, if nobody waits for it. `is_unanswered`: nothing of what was announced last has been
  // answered yet.
  TimePoint due(bool is_unanswered) const;
  // Or earlier than that, as there is enough of it.
  bool is_enough() const { return bytes_ >= fusion_threshold_; }

  std::vector<Queued> take_all();
  std::vector<Submission> take_of(const ProcessSets::Pointer& set);

 private:
  int64_t fusion_threshold_ = 0;
  std::chrono::microseconds cycle_{0};
  std::vector<Queued> queue_;
  TimePoint since_, latest_;  // first and last submission in it
  int64_t bytes_ = 0;
};

}  // namespace hvd
