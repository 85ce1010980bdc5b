// A rank's announcements and the responses to them. Submissions go to rank 0, which coordinates all process sets; its responses
// come in the order in which every rank carries them out. On rank 0 also: hears all ranks, responds, and finds deadlocks and
// stalls. Engine thread only; the clock is the caller's.
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

  // All of it outlives this one.
  Negotiation(Transport& transport, const ProcessSets& sets, BackwardPasses& passes, Observers& observers);

  // Hears what other ranks have sent. True if they had.
  bool receive(TimePoint now);
  // Announcements of sets that had not been added here when they came.
  void hear_early(TimePoint now);

  void announce(std::vector<Submitted> submitted, bool is_leaving, TimePoint now);
  void announce_leaving(TimePoint now);
  // Tells rank 0 for which operations callers wait, if it has not answered them yet.
  void report_blocked(const std::map<int64_t, bool>& blocked, TimePoint now);
  // Tells rank 0 that this rank is in no backward pass, if it has asked. When all that was started in passes is announced.
  bool answer_pass_queries(TimePoint now);

  // On rank 0; nothing elsewhere. Responds to what has become ready, to all whom it concerns. True if anything had.
  bool coordinate();
  // Whether what ranks have not asked for ends the job. Then all are told.
  bool end_stalled(TimePoint now, const LivenessMonitor& liveness);

  // Responses on this rank's operations that it has not carried out, of rank 0, and its own on what it begins before.
  std::deque<Response>& responses() { return responses_; }
  // Does what a response asks of this rank, besides operations: to answer, or to forget. False if it is not one of those.
  bool follow(const Response& response, ProcessSet& set);
  // Why rank 0 says that no more will be carried out, if it does. `of_begun`: a rank that has left ends what this rank has begun
  // last, or is about to begin, unless a response before has said that all ask for it.
  Failure reason_to_end(bool of_begun) const;

 private:
  void on_responses(const Message& message);
  void on_announcement(int from, const Announcement& announcement, TimePoint now);
  void say(const Announcement& announcement, TimePoint now);
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
  std::vector<std::pair<int, Announcement>> early_;  // by rank: of sets not yet added
};

}  // namespace hvd
