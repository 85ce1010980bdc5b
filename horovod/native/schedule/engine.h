// The engine: takes submissions from any thread, agrees with the other ranks on what is ready, and carries it out.
//
// One background thread does everything but submitting and waiting. Submissions are gathered until somebody waits for one,
// they reach the fusion threshold, or a cycle has passed.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "base/settings.h"
#include "schedule/coordinator.h"
#include "schedule/executor.h"
#include "schedule/handles.h"

namespace hvd {

class Engine {
 public:
  enum class Drive { kThread, kManual };

  // The transport outlives the engine. Drive::kManual has no thread: tests call step(), whose argument is their clock.
  Engine(Transport& transport, const Settings& settings, Drive drive = Drive::kThread);
  ~Engine();

  // Returns a handle. Throws InvalidArgument if the name is in flight on this rank, InternalError after the end.
  int64_t submit(Submission submission) EXCLUDES(mutex_);
  bool is_done(int64_t handle) { return handles_.is_done(handle); }
  // Sleeps until the operation is done or the time is over. See HandleTable::wait.
  std::optional<Result> wait(int64_t handle, std::chrono::microseconds timeout);

  // Tells the other ranks, waits until all have stopped, and fails what is pending. May be repeated, by one thread.
  void shutdown() EXCLUDES(mutex_);
  // True when the engine stopped because something failed, on this rank or another, and not in order.
  bool has_failed() const { return has_failed_; }

  // One round, after `elapsed` has passed on the manual clock. True if anything happened.
  bool step(std::chrono::microseconds elapsed);
  const Counters& counters() const { return counters_; }
 private:
  using TimePoint = std::chrono::steady_clock::time_point;

  void run();
  bool round();
  void sleep();
  TimePoint now() const;
  void hear(const Message& message);
  bool announce() EXCLUDES(mutex_);
  bool must_announce() REQUIRES(mutex_);
  bool decide();
  void tell(int rank, const std::vector<Verdict>& verdicts);
  void obey(const Verdict& verdict);
  void announce_in_full(const std::vector<uint32_t>& ids);
  void give_up(const std::string& reason) EXCLUDES(mutex_);
  void stop(const std::string& reason) EXCLUDES(mutex_);
  Agreed take(const Item& item);
  std::vector<Agreed> take_all(const std::vector<Item>& items);
  void release_names(const std::vector<Agreed>& done) EXCLUDES(mutex_);
  void run_together(const std::vector<Item>& items);
  void refuse(const Verdict& verdict);

  // Constant after construction.
  Transport& transport_;
  const Settings settings_;
  const Log log_;
  const Drive drive_;
  const bool coordinates_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  Counters counters_;
  HandleTable handles_;
  Mutex mutex_;
  std::vector<Submission> queue_ GUARDED_BY(mutex_);             // submitted, not yet announced
  std::unordered_set<std::string> in_flight_ GUARDED_BY(mutex_);  // names submitted and not done
  TimePoint queue_since_ GUARDED_BY(mutex_);
  int64_t queue_bytes_ GUARDED_BY(mutex_) = 0;
  bool leaving_ GUARDED_BY(mutex_) = false;
  bool told_leaving_ GUARDED_BY(mutex_) = false;
  std::string stopped_because_ GUARDED_BY(mutex_);  // not empty: nothing is accepted any more
  std::atomic<bool> somebody_waits_{false};
  std::atomic<bool> has_failed_{false};

  // Engine thread only (or whoever steps).
  std::unordered_map<std::string, Submission> announced_;
  CacheMirror mirror_;
  std::unique_ptr<Coordinator> coordinator_;  // on rank 0
  Executor executor_;
  bool is_stopped_ = false;
  TimePoint manual_now_{};

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace hvd
