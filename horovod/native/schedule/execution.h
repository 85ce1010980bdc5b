// Carries out what all ranks have agreed on, in rank 0's order, and gives results to the callers. Engine thread only, but for
// tuned().
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/settings.h"
#include "schedule/handles.h"
#include "schedule/liveness_monitor.h"
#include "schedule/process_sets.h"
#include "schedule/rank_gpu.h"
#include "schedule/submissions.h"
#include "transport/transport.h"

namespace hvd {

class Execution {
 public:
  // All of it outlives this one.
  struct Parts {
    Transport& transport;
    Settings& settings;  // which it tunes
    ProcessSets& sets;
    RankGpu& gpu;
    InFlight& in_flight;
    LivenessMonitor& liveness;
    HandleTable& handles;
    Submissions& submissions;
  };
  struct Hooks {
    std::function<void()> on_failure;       // of an operation: nothing more can be carried out
    std::function<Failure()> reason_heard;  // then: why other ranks say that the job ends, if they do
    std::function<void()> on_set_added;
  };
  Execution(const Parts& parts, Hooks hooks) : parts_(parts), hooks_(std::move(hooks)) {}

  // kRun, kRefuse, kDecided, kRelease. Throws InternalError when the job cannot go on; its operations have failed then.
  void carry_out(const Response& response, ProcessSet& set);

  bool is_full() const { return parts_.in_flight.is_full(); }  // the GPU has enough to do
  bool is_inside_begun() const { return is_inside_begun_; }    // in an operation that not all are known to ask for
  std::string tuned() const EXCLUDES(mutex_);  // any thread: the last that ranks were tuned by, also while this one had joined

  // Fails all that callers wait for. What a GPU still has to do is cut off if it `is_cut`.
  void stop(const Failure& reason, bool is_cut);

 private:
  void run_together(ProcessSet& set, const std::vector<Item>& items, bool begins);
  [[noreturn]] void fail_all(std::span<const Agreed> together, const Failure& why);
  Result run(ProcessSet& set, std::span<Agreed> together);
  void give_out(const ProcessSet& set, const CarriedOut& done);
  void refuse(ProcessSet& set, const Response& response);
  void answer_question(ProcessSet& set, const Response& response);
  void remove_set(int id);
  void tune(const std::string& lines) EXCLUDES(mutex_);

  const Parts parts_;
  const Hooks hooks_;
  bool is_inside_begun_ = false;
  mutable Mutex mutex_;
  std::string tuned_ GUARDED_BY(mutex_);
};

}  // namespace hvd
