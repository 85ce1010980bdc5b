// The engine: takes submissions from any thread, agrees with the other ranks on what is ready, and carries it out. One thread
// does all but submitting and waiting. Submissions are gathered until somebody waits for one, they reach the fusion threshold,
// or a cycle has passed. Rank 0 coordinates all process sets: all operations have one order.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "base/settings.h"
#include "observe/observers.h"
#include "schedule/backward_passes.h"
#include "schedule/deadlocks.h"
#include "schedule/handles.h"
#include "schedule/liveness_monitor.h"
#include "schedule/rank_gpu.h"
#include "schedule/result_memory.h"
#include "schedule/submission_queue.h"

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
  int64_t submit(int process_set, Submission submission) EXCLUDES(mutex_);
  // What is submitted between the two is announced together, as soon as nobody holds any more. Calls may overlap.
  void hold() EXCLUDES(mutex_), let_go() EXCLUDES(mutex_);
  bool is_done(int64_t handle) { return handles_.is_done(handle); }  // these and wait(): see HandleTable
  bool has_result(int64_t handle) { return handles_.has_result(handle); }
  std::optional<Result> wait(int64_t handle, std::chrono::microseconds timeout);
  HandleTable::Seen wait_for_result(int64_t handle, std::chrono::microseconds timeout, bool in_hurry = true);
  // Says that a caller does nothing until the operation is done; it `may_yield` if it can go on without. Callers say so when
  // they have waited for a while, and again now and then: so ranks that wait for each other in a circle are found out.
  void note_blocked(int64_t handle, bool may_yield) EXCLUDES(mutex_);
  void note_pass(bool is_in_pass);  // whether the training thread is in a backward pass

  std::string tuned() const EXCLUDES(mutex_);  // the last that ranks were tuned by, also while this one had joined
  const ProcessSets& process_sets() const { return sets_; }
  Observers& observers() { return observers_; }
  ResultMemory& results() { return *results_; }
  void stop_timeline();              // when it has been told of what a GPU is still doing
  void shutdown() EXCLUDES(mutex_);  // waits until all ranks have stopped, and fails what is pending; may be repeated
  bool has_failed() const { return has_failed_; }  // stopped because something failed, on this rank or another
  bool has_ended() const EXCLUDES(mutex_);         // for whatever reason: nothing is accepted any more
  bool step(std::chrono::microseconds elapsed);    // one round, later by that; true if anything happened
  std::chrono::microseconds cpu_time();            // of the engine's thread so far, collectives included; 0 without a thread

 private:
  using TimePoint = std::chrono::steady_clock::time_point;
  bool round(), issue(), hear_later(), carry_out_responses(), end_stalled();
  void run(), hurry(), sleep();
  TimePoint now() const;
  void on_message(const Message& message), on_responses(const Message& message);
  void on_announcement(int from, const Announcement& announcement), hear(int from, const Announcement& announcement);
  bool announce() EXCLUDES(mutex_), must_announce() REQUIRES(mutex_);
  void tell_peers(const Announcement& begun), give_out_agreed();
  bool report_blocked() EXCLUDES(mutex_), answer_pass_queries() EXCLUDES(mutex_);
  void release_deadlocked(), ask_of_passes(), serve_others(), listen_inside();
  void say_to_coordinator(const Announcement& announcement), post_to(int rank, Response response);
  Failure reason_to_end(bool of_begun) const, reason_heard();
  void inspect_stalls(), tell_leaving() EXCLUDES(mutex_);
  void carry_out(const Response& response), give_out(ProcessSet& set, const CarriedOut& done);
  void run_together(ProcessSet& set, const std::vector<Item>& items, bool begins);
  Result carry_out(ProcessSet& set, std::span<Agreed> together);
  void refuse(ProcessSet& set, const Response& response), tell_decided(ProcessSet& set, const Response& response);
  void remove_set(int id) EXCLUDES(mutex_), tune(const std::string& lines) EXCLUDES(mutex_);
  void release_names(ProcessSet& set, const std::vector<Agreed>& done) EXCLUDES(mutex_);
  void give_up(const Failure& why) EXCLUDES(mutex_), end(const Failure& error) EXCLUDES(mutex_);
  void accept_no_more(const Failure& reason) EXCLUDES(mutex_), stop(const Failure& reason) EXCLUDES(mutex_);

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
  mutable Mutex mutex_, joining_;
  SubmissionQueue queue_ GUARDED_BY(mutex_);  // submitted, not yet announced
  int held_ GUARDED_BY(mutex_) = 0;
  bool is_new_batch_ GUARDED_BY(mutex_) = true;         // the next submission does not go together with the last
  std::map<int64_t, bool> blocked_ GUARDED_BY(mutex_);  // handles that callers wait for, and whether these may yield
  bool leaving_ GUARDED_BY(mutex_) = false, told_leaving_ GUARDED_BY(mutex_) = false;
  Failure stopped_because_ GUARDED_BY(mutex_);  // if any, nothing is accepted any more
  std::string tuned_ GUARDED_BY(mutex_);
  std::atomic<bool> somebody_waits_{false}, caller_is_blocked_{false}, is_unanswered_{false};  // the last announcement
  BackwardPasses passes_;
  std::atomic<bool> has_failed_{false}, is_stopped_{false}, is_ahead_{false};  // of answers, which it hears before it leaves
  // Engine thread only, or whoever steps.
  std::deque<Response> responses_;                           // responses on this rank's operations that it has not carried out
  Deadlocks deadlocks_;                                      // on rank 0
  std::vector<std::pair<int, Announcement>> early_, later_;  // by rank: of sets not yet added; of who is ahead of others
  TimePoint manual_now_{};
  bool is_inside_begun_ = false;  // carries out what not all are known to ask for
  std::optional<TimePoint> failed_at_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace hvd
