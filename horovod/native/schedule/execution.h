// Carries out agreed operations in rank 0's order, and gives results to callers. Engine thread only, except tuned().
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "schedule/engine_parts.h"

namespace hvd {

class Execution {
 public:
  struct Hooks {
    std::function<void()> on_failure;       // an operation has failed; no more can be carried out
    std::function<Failure()> reason_heard;  // then: the coordinator's reason to end the job, if it has sent any
    std::function<void()> on_set_added;
  };
  // The parts outlive this object.
  Execution(EngineParts& parts, Hooks hooks) : parts_(parts), hooks_(std::move(hooks)) {}

  // For kRun, kRefuse, kDecided and kRelease. If the job cannot go on, fails the handles and throws InternalError.
  void carry_out(const Response& response, ProcessSet& set);

  bool is_full() const { return parts_.in_flight.is_full(); }  // see InFlight
  bool is_inside_begun() const { return is_inside_begun_; }    // inside an operation begun before rank 0's response
  std::string tuned() const EXCLUDES(mutex_);  // any thread: the latest settings of the autotuner, also those after a join

  // Fails all pending handles. `is_cut`: aborts the GPU's work.
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

  EngineParts& parts_;
  const Hooks hooks_;
  bool is_inside_begun_ = false;
  mutable Mutex mutex_;
  std::string tuned_ GUARDED_BY(mutex_);
};

}  // namespace hvd
