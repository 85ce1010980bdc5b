// Submissions that the engine has not announced. They are due when a caller waits for one, they reach the fusion threshold, or
// a cycle has passed. Thread-safe; the caller gives the time.
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

  // Any thread. `must_wake`: the engine's thread must wake before due(). Throws InternalError after close(), InvalidArgument if
  // this rank has the name in flight in that set.
  struct Added {
    int64_t handle = 0;
    bool must_wake = false;
  };
  Added add(Submitted submitted, TimePoint now) EXCLUDES(mutex_);
  // Any thread. Submissions between hold() and let_go() are announced together, after the last of overlapping holds. let_go()
  // and hurry() return whether the engine's thread must wake.
  void hold() EXCLUDES(mutex_);
  bool let_go() EXCLUDES(mutex_);
  bool hurry() EXCLUDES(mutex_);  // a caller waits for a submission
  // A caller waits for the handle and does nothing else.
  void note_blocked(int64_t handle, bool may_yield) EXCLUDES(mutex_);

  // For the engine's thread.
  bool is_empty() const EXCLUDES(mutex_);
  // The time at which they must be announced; nothing if there are none, or they are held.
  std::optional<TimePoint> due() const EXCLUDES(mutex_);
  // All submissions if they are due or `at_once`, else none.
  std::vector<Submitted> take_due(TimePoint now, bool at_once) EXCLUDES(mutex_);
  std::vector<Submission> take_of(const ProcessSets::Pointer& set) EXCLUDES(mutex_);
  // A response has come to an announced submission.
  void note_answer() EXCLUDES(mutex_);
  // The handles for which callers wait, and whether they may yield. None while there are submissions to announce, since callers
  // may wait for these.
  std::map<int64_t, bool> take_blocked() EXCLUDES(mutex_);
  // Allows these names again. Call it before callers can learn that the operations are done.
  void release_names(const ProcessSet& set, const std::vector<Agreed>& done) EXCLUDES(mutex_);
  // Accepts no more submissions. The first reason counts.
  void close(const Failure& reason) EXCLUDES(mutex_);
  bool are_closed() const EXCLUDES(mutex_);    // any thread
  void require_open() const EXCLUDES(mutex_);  // any thread; throws as add()
  std::vector<Submitted> take_all() EXCLUDES(mutex_);

 private:
  bool are_due(TimePoint now) const REQUIRES(mutex_);
  TimePoint due_time() const REQUIRES(mutex_);

  HandleTable& handles_;
  mutable Mutex mutex_;
  Settings settings_ GUARDED_BY(mutex_);
  std::vector<Submitted> queue_ GUARDED_BY(mutex_);
  TimePoint since_ GUARDED_BY(mutex_), latest_ GUARDED_BY(mutex_);  // first and last submission in queue_
  int64_t bytes_ GUARDED_BY(mutex_) = 0;
  int held_ GUARDED_BY(mutex_) = 0;
  bool is_new_batch_ GUARDED_BY(mutex_) = true;  // the next submission begins a batch
  bool somebody_waits_ GUARDED_BY(mutex_) = false;
  bool are_unanswered_ GUARDED_BY(mutex_) = false;  // no response since the last announcement
  std::map<int64_t, bool> blocked_ GUARDED_BY(mutex_);
  // By serial of the set, the names in flight.
  std::unordered_map<uint32_t, std::unordered_set<std::string>> in_flight_ GUARDED_BY(mutex_);
  Failure closed_because_ GUARDED_BY(mutex_);
};

}  // namespace hvd
