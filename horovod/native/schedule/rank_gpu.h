// The GPU of a rank: which it is, and what it has been given and has not done.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collective/device/device_workspace.h"
#include "collective/device/gpu_backend.h"
#include "device/device.h"
#include "device/stream.h"
#include "observe/counters.h"
#include "observe/listener.h"
#include "schedule/result_memory.h"
#include "schedule/submission.h"

namespace hvd {

// The one GPU that a rank uses: that of its first GPU tensor. Until there is one, nothing of CUDA is opened.
class RankGpu {
 public:
  // By their numbers in the job and on the host. `attend`: what the engine's thread does while it waits for the GPU.
  RankGpu(int rank, int local_rank, ProgressCallback attend)
      : rank_(rank), local_rank_(local_rank), attend_(std::move(attend)) {}

  const ProgressCallback& progress_callback() const { return attend_; }
  // Any thread. Has a submission of GPU tensors wait for what their streams have been given so far. Throws InvalidArgument
  // if this rank uses another GPU, or there is none.
  void admit(Submission* submission);

  // Engine thread. What all process sets have in common on the GPU. A rank that has joined before it used any takes the one
  // of its place on the host. Throws InvalidArgument if there is none.
  const std::shared_ptr<DeviceWorkspace>& workspace();
  // Engine thread, after a failure and when communicators are aborted: returns when the GPU has done what it was given, or
  // does not come to it.
  void quiesce();
  // Engine thread, at the end.
  void close() { workspace_ = nullptr; }

 private:
  Device& take(int index);

  const int rank_, local_rank_;
  const ProgressCallback attend_;
  std::atomic<Device*> device_{nullptr};
  std::shared_ptr<DeviceWorkspace> workspace_;  // engine thread
};

// What the GPU has been given and has not done: who wants to hear of its end, what memory it uses, and whether something has
// failed meanwhile. All of it is done in the order in which it was added. Engine thread only.
struct DeviceWork {
  std::string tensor;       // the first
  std::string description;  // "'allreduce.x' and 3 others, 1200 bytes"
  GpuBackend* backend = nullptr;
  Counters* counters = nullptr;
  Event begun, done;                          // its tensors are ready, and the work before it is done; and it is
  std::vector<std::shared_ptr<void>> memory;  // of stand-ins and results

  std::vector<Listener*> listening;  // if there are none, the rest is empty
  std::vector<ObservedOperation> operations;
  GpuWork story;  // so far: it begins when it is enqueued, and its activities have not ended
};

class InFlight {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // The rank is for errors.
  explicit InFlight(int rank) : rank_(rank), lent_(std::make_shared<LentMemory>()) {}

  void add(DeviceWork work);
  // Before the first work that is watched is enqueued on an idle stream: by which the GPU's clock and the host's compare.
  bool needs_clock() const { return work_.empty() || clock_ == nullptr; }
  void set_clock(Event now);  // has just come
  // Forgets what is done, and tells of it. Returns what has failed, if anything has.
  Failure look();
  // The same without forgetting anything: in the middle of an operation.
  Failure failure() const;
  // So much that no more should be added: a host far ahead of its GPU gains nothing, and would have to wait for memory
  // and room in the GPU's queues without hearing of failures.
  bool is_full() const { return work_.size() >= kMost || (!work_.empty() && lent_->has_surplus()); }
  // How long the engine may sleep before it looks again.
  std::chrono::microseconds until_next_look() const;
  // Returns when all is done; or what has failed, which it also is when nothing gets done for long.
  // Meanwhile it calls `attend`.
  Failure finish(const ProgressCallback& attend = [] {});
  // After a failure: whatever happens to it, nobody wants to know.
  void forget();

  // Of what is under way: its description, or "". And how much has been done so far.
  std::string first() const { return work_.empty() ? "" : work_.front().description; }
  uint64_t ended() const { return ended_; }

  const std::shared_ptr<LentMemory>& lent() const { return lent_; }
  int watched() const { return watched_; }  // any thread: how much of it is listened to

 private:
  static constexpr size_t kMost = 24;

  void end(DeviceWork& work);
  TimePoint time_of(Device& device, const Event& event) const;

  const int rank_;
  std::deque<DeviceWork> work_;
  TimePoint last_added_;
  std::atomic<int> watched_{0};
  uint64_t ended_ = 0;
  const std::shared_ptr<LentMemory> lent_;
  Event clock_;  // came at clock_time_
  TimePoint clock_time_;
  TimePoint last_done_;  // end of the last work that was watched
};

}  // namespace hvd
