// Submissions of this rank's callers that the engine has not announced: gathered until somebody waits for one, they reach
// the fusion threshold, or a cycle has passed. Thread-safe; the clock is the caller's.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/error.h"
#include "base/mutex.h"
#include "base/settings.h"
#include "schedule/handles.h"
#include "schedule/process_sets.h"

namespace hvd {

struct Submitted {
  ProcessSets::Pointer set;
  Submission submission;
};

class Submissions {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // Both outlive it.
  Submissions(const Settings& settings, HandleTable& handles) : handles_(handles) { tune(settings); }
  void tune(const Settings& settings) EXCLUDES(mutex_);

  // Any thread. The engine's thread sleeps at most until they are due: `must_wake` says that it has to begin earlier.
  // Throws InternalError once they are closed, and InvalidArgument if this rank has the name in flight in that set.
  struct Added {
    int64_t handle = 0;
    bool must_wake = false;
  };
  Added add(Submitted submitted, TimePoint now) EXCLUDES(mutex_);
  // What is added between the two is announced together, as soon as nobody holds any more. Calls may overlap. let_go() and
  // hurry() return whether the thread has to be woken.
  void hold() EXCLUDES(mutex_);
  bool let_go() EXCLUDES(mutex_);
  bool hurry() EXCLUDES(mutex_);  // a caller waits for what is here
  // A caller waits for the handle, and does nothing else.
  void note_blocked(int64_t handle, bool may_yield) EXCLUDES(mutex_);

  // For the engine's thread.
  bool is_empty() const EXCLUDES(mutex_);
  // When they are to be announced; nothing if there are none, or they are held.
  std::optional<TimePoint> due() const EXCLUDES(mutex_);
  // All, if they are to be announced by now, or `at_once`. From then on they are unanswered.
  std::vector<Submitted> take_due(TimePoint now, bool at_once) EXCLUDES(mutex_);
  std::vector<Submission> take_of(const ProcessSets::Pointer& set) EXCLUDES(mutex_);
  // Something that was announced has been answered.
  void note_answer() EXCLUDES(mutex_);
  // Handles that callers have come to wait for, and whether they may yield; none while there is something to announce, which
  // may be what they wait for.
  std::map<int64_t, bool> take_blocked() EXCLUDES(mutex_);
  // Their names are free again: before their callers can learn that they are done.
  void release_names(const ProcessSet& set, const std::vector<Agreed>& done) EXCLUDES(mutex_);
  // No more is accepted: the first reason counts.
  void close(const Failure& reason) EXCLUDES(mutex_);
  bool are_closed() const EXCLUDES(mutex_);    // these two from any thread
  void require_open() const EXCLUDES(mutex_);  // throws as add()
  std::vector<Submitted> take_all() EXCLUDES(mutex_);

 private:
  bool are_due(TimePoint now) const REQUIRES(mutex_);
  TimePoint due_time() const REQUIRES(mutex_);

  HandleTable& handles_;
  mutable Mutex mutex_;
  Settings settings_ GUARDED_BY(mutex_);
  std::vector<Submitted> queue_ GUARDED_BY(mutex_);
  TimePoint since_ GUARDED_BY(mutex_), latest_ GUARDED_BY(mutex_);  // first and last submission in it
  int64_t bytes_ GUARDED_BY(mutex_) = 0;
  int held_ GUARDED_BY(mutex_) = 0;
  bool is_new_batch_ GUARDED_BY(mutex_) = true;  // the next submission does not go together with the last
  bool somebody_waits_ GUARDED_BY(mutex_) = false;
  bool are_unanswered_ GUARDED_BY(mutex_) = false;  // those that were announced last
  std::map<int64_t, bool> blocked_ GUARDED_BY(mutex_);
  // By serial of the set, the names of what is not done.
  std::unordered_map<uint32_t, std::unordered_set<std::string>> in_flight_ GUARDED_BY(mutex_);
  Failure closed_because_ GUARDED_BY(mutex_);
};

}  // namespace hvd
