// Announces a rank's submissions to rank 0, which coordinates all process sets, and receives its responses, in the order in
// which every rank carries them out. On rank 0 it also receives all announcements, responds, and finds deadlocks and stalls.
// Engine thread only; the caller gives the time.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "observe/observers.h"
#include "schedule/backward_passes.h"
#include "schedule/deadlocks.h"
#include "schedule/liveness_monitor.h"
#include "schedule/process_sets.h"
#include "schedule/submissions.h"
#include "transport/transport.h"

namespace hvd {

class Negotiation {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // All arguments outlive it.
  Negotiation(Transport& transport, const ProcessSets& sets, BackwardPasses& passes, Observers& observers);

  // Handles the messages of other ranks. True if there were any.
  bool receive(TimePoint now);
  // Handles announcements that came before their process set was added here.
  void receive_early(TimePoint now);

  void announce(std::vector<Submitted> submitted, bool is_leaving, TimePoint now);
  void announce_leaving(TimePoint now);
  // Reports to rank 0 the unanswered operations for which callers wait. `blocked`: whether they may yield, by handle.
  void report_blocked(const std::map<int64_t, bool>& blocked, TimePoint now);
  // Answers rank 0's queries, if this rank is in no backward pass. Its operations must have been announced.
  bool answer_pass_queries(TimePoint now);

  // On rank 0, else a no-op: sends responses on what has become ready. True if there are any.
  bool coordinate();
  // On rank 0: whether a stall ends the job. If so, sends the reason to all ranks.
  bool end_stalled(TimePoint now, const LivenessMonitor& liveness);

  // Responses that this rank has not carried out: rank 0's, and its own on operations that it begins.
  std::deque<Response>& responses() { return responses_; }
  // Handles kForget, kAskOfPass and kAskInFull. False for other responses.
  bool follow(const Response& response, ProcessSet& set);
  // The error of a kShutdown among the responses. With `of_begun`, Said::shut_down if that has no error, unless an earlier
  // response confirms the operation that this rank has begun last or is about to begin.
  Failure reason_to_end(bool of_begun) const;

 private:
  void on_responses(const Message& message);
  void on_announcement(int from, const Announcement& announcement, TimePoint now);
  void send(const Announcement& announcement, TimePoint now);
  void post(int rank, Response response);
  bool issue();
  void ask_of_passes();
  void release_deadlocked();

  Transport& transport_;
  const ProcessSets& sets_;
  BackwardPasses& passes_;
  Observers& observers_;
  const bool coordinates_;

  std::deque<Response> responses_;
  Deadlocks deadlocks_;                              // on rank 0
  std::vector<std::pair<int, Announcement>> early_;  // rank, announcement for a set that is not yet added
};

}  // namespace hvd
