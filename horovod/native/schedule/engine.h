// The engine accepts submissions from any thread, negotiates with the other ranks, and carries out agreed operations. Callers
// submit and wait; one thread does the rest. Rank 0 coordinates all process sets, so all operations have one order.
//
//   Submissions   gathers submissions until they are announced
//   Negotiation   announces them, and receives rank 0's responses
//   Execution     carries out responses, and gives results to callers
//   Life          the engine's stages from its start to its end
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "schedule/engine_parts.h"
#include "schedule/execution.h"
#include "schedule/negotiation.h"

namespace hvd {

// The stage of an engine, which only advances. Thread-safe.
class Life {
 public:
  enum Stage {
    kOpen,
    kLeaving,      // this rank's script has called shutdown()
    kToldLeaving,  // this rank has announced that to rank 0
    kEnded,        // without a failure
    kFailing,      // no more operations can be carried out; handles fail
    kFailed,
  };

  void advance(Stage to) {
    Stage from = stage_;
    while (from < to && !stage_.compare_exchange_weak(from, to)) {
    }
  }
  bool is(Stage stage) const { return stage_ == stage; }
  bool has_failed() const { return stage_ >= kFailing; }
  bool is_over() const { return is(kEnded) || is(kFailed); }

 private:
  std::atomic<Stage> stage_{kOpen};
};

class Engine {
 public:
  enum class Drive { kThread, kManual };

  // The transport outlives the engine. With Drive::kManual there is no thread: tests call step(), whose argument advances the
  // clock. `in_order`: see EngineContext.
  Engine(Transport& transport, const Settings& settings, Drive drive = Drive::kThread, bool in_order = false);
  ~Engine();
  // Returns a handle. Throws InvalidArgument if the process set does not exist, this rank is not in it, or the name is in
  // flight on this rank; InternalError after the engine's end.
  int64_t submit(int process_set, Submission submission);
  void hold() { parts_.submissions.hold(); }  // hold() and let_go(): see Submissions
  void let_go();
  bool is_done(int64_t handle) { return parts_.handles.is_done(handle); }  // this and the next three: see HandleTable
  bool has_result(int64_t handle) { return parts_.handles.has_result(handle); }
  std::optional<Result> wait(int64_t handle, std::chrono::microseconds timeout);
  HandleTable::Seen wait_for_result(int64_t handle, std::chrono::microseconds timeout, bool in_hurry = true);
  // Reports that a caller does nothing until the operation is done or, if it `may_yield`, released. Callers do so after a short
  // wait, and then repeatedly, so that rank 0 can find deadlocks.
  void note_blocked(int64_t handle, bool may_yield);
  void note_pass(bool is_in_pass);  // the training thread enters or leaves a backward pass

  std::string tuned() const { return execution_.tuned(); }
  const ProcessSets& process_sets() const { return parts_.sets; }
  Observers& observers() { return parts_.observers; }
  ResultMemory& results() { return *parts_.results; }
  void stop_timeline();                // waits until the timeline has the GPU's work, for kTimelineEnd at most
  void shutdown() EXCLUDES(joining_);  // waits until all ranks have stopped, and fails pending operations; idempotent
  bool has_failed() const { return life_.has_failed(); }              // it stopped because of a failure on any rank
  bool has_ended() const { return parts_.submissions.are_closed(); }  // it accepts no more submissions, for any reason
  bool step(std::chrono::microseconds elapsed);                       // advances the clock and does a round; true on progress
  std::chrono::microseconds cpu_time();  // processor time of the engine's thread; 0 without a thread

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
  EngineParts parts_;
  const Drive drive_;
  const bool coordinates_, in_order_;
  const std::optional<int> core_;  // to which the thread is pinned
  Life life_;
  Negotiation negotiation_;  // this and execution_: the engine's thread only
  Execution execution_;
  std::atomic<bool> caller_is_blocked_{false};
  TimePoint manual_now_{};
  std::optional<TimePoint> failed_at_;
  Mutex joining_;
  std::thread thread_;  // last, since it uses all other members
};

}  // namespace hvd
