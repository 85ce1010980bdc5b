// The engine: takes submissions from any thread, agrees with the other ranks on what is ready, and carries it out. One thread
// does all but submitting and waiting. Rank 0 coordinates all process sets: all operations have one order.
//
//   Submissions   what callers have asked for, until it is announced
//   Negotiation   announces it, and hears what all ranks have agreed on
//   Execution     carries that out, and gives results to the callers
//   Life          from the first submission to the end
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/log.h"
#include "base/mutex.h"
#include "base/settings.h"
#include "observe/observers.h"
#include "schedule/backward_passes.h"
#include "schedule/execution.h"
#include "schedule/handles.h"
#include "schedule/life.h"
#include "schedule/liveness_monitor.h"
#include "schedule/negotiation.h"
#include "schedule/rank_gpu.h"
#include "schedule/result_memory.h"
#include "schedule/submissions.h"

namespace hvd {

class Engine {
 public:
  enum class Drive { kThread, kManual };

  // The transport outlives the engine. Drive::kManual has no thread: tests call step(), whose argument is their clock.
  // `in_order`: see EngineContext.
  Engine(Transport& transport, const Settings& settings, Drive drive = Drive::kThread, bool in_order = false);
  ~Engine();
  // Returns a handle. Throws InvalidArgument if there is no such process set, this rank is not in it, or the name is in
  // flight on this rank; InternalError after the end.
  int64_t submit(int process_set, Submission submission);
  void hold() { submissions_.hold(); }  // these two: see Submissions
  void let_go();
  bool is_done(int64_t handle) { return handles_.is_done(handle); }  // these and wait(): see HandleTable
  bool has_result(int64_t handle) { return handles_.has_result(handle); }
  std::optional<Result> wait(int64_t handle, std::chrono::microseconds timeout);
  HandleTable::Seen wait_for_result(int64_t handle, std::chrono::microseconds timeout, bool in_hurry = true);
  // Says that a caller does nothing until the operation is done; it `may_yield` if it can go on without. Callers say so when
  // they have waited for a while, and again now and then: so ranks that wait for each other in a circle are found out.
  void note_blocked(int64_t handle, bool may_yield);
  void note_pass(bool is_in_pass);  // whether the training thread is in a backward pass

  std::string tuned() const { return execution_.tuned(); }
  const ProcessSets& process_sets() const { return sets_; }
  Observers& observers() { return observers_; }
  ResultMemory& results() { return *results_; }
  void stop_timeline();                // when it has been told of what a GPU is still doing
  void shutdown() EXCLUDES(joining_);  // waits until all ranks have stopped, and fails what is pending; may be repeated
  bool has_failed() const { return life_.has_failed(); }        // stopped because something failed, on this rank or another
  bool has_ended() const { return submissions_.are_closed(); }  // for whatever reason: nothing is accepted any more
  bool step(std::chrono::microseconds elapsed);                 // one round, later by that; true if anything happened
  std::chrono::microseconds cpu_time();  // of the engine's thread so far, collectives included; 0 without a thread

 private:
  using TimePoint = std::chrono::steady_clock::time_point;
  TimePoint now() const;
  void run(), hurry(), sleep();
  bool round(), announce(), report_blocked(), answer_pass_queries(), carry_out_responses();
  bool must_wait(const Response& response);
  void coordinate_inside(), listen_inside(), tell_leaving(), inspect_stalls();
  Failure reason_heard();
  bool must_cut() const;
  void end(Failure reason, bool must_tell), tell_others(const Failure& reason);

  // Constant after construction.
  Transport& transport_;
  Settings settings_;  // of the engine's thread; what it shares with others never changes
  const Log log_;
  const Drive drive_;
  const bool coordinates_, in_order_;
  const std::optional<int> core_;  // for the thread
  Observers observers_;
  RankGpu gpu_;
  InFlight in_flight_;  // the engine's thread only
  const std::shared_ptr<ResultMemory> results_ = std::make_shared<ResultMemory>();
  ProcessSets sets_;
  LivenessMonitor liveness_;  // the engine's thread only
  HandleTable handles_;
  Submissions submissions_;
  BackwardPasses passes_;
  Life life_;
  Negotiation negotiation_;  // these two: the engine's thread only
  Execution execution_;
  std::atomic<bool> caller_is_blocked_{false};
  TimePoint manual_now_{};
  std::optional<TimePoint> failed_at_;
  Mutex joining_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace hvd
