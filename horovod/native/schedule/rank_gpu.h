// The GPU of a rank, and its work in flight.
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

// The one GPU that a rank uses, which is that of its first GPU tensor. CUDA is opened only then.
class RankGpu {
 public:
  // `rank` in the job, `local_rank` on the host. The engine's thread calls `attend` while it waits for the GPU.
  RankGpu(int rank, int local_rank, ProgressCallback attend)
      : rank_(rank), local_rank_(local_rank), attend_(std::move(attend)) {}

  const ProgressCallback& progress_callback() const { return attend_; }
  // Any thread. Makes the submission wait for the earlier work of its tensors' streams. Throws InvalidArgument if this rank
  // uses another GPU, or there is none.
  void admit(Submission* submission);

  // Engine thread. The workspace of all process sets. A rank that has joined before it used a GPU takes GPU number
  // local_rank modulo the number of GPUs. Throws InvalidArgument if there is none.
  const std::shared_ptr<DeviceWorkspace>& workspace();
  // Engine thread, after a failure, when communicators are aborted: waits for the GPU's work, for kGpuSettles at most.
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

// One operation's work on the GPU: its memory, events, counters and listeners.
struct DeviceWork {
  std::string tensor;       // name of the first
  std::string description;  // "'allreduce.x' and 3 others, 1200 bytes"
  GpuBackend* backend = nullptr;
  Counters* counters = nullptr;
  Event begun, done;                          // begun: its tensors are ready and the work before it is done
  std::vector<std::shared_ptr<void>> memory;  // of stand-ins and results

  std::vector<Listener*> listening;  // if empty, so are the members below
  std::vector<ObservedOperation> operations;
  GpuWork story;  // so far: begins when it is enqueued, activities without ends
};

// Work in flight on the GPU, which does it in the order of add(). Engine thread only, except watched().

class InFlight {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // `rank`: for errors.
  explicit InFlight(int rank) : rank_(rank), lent_(std::make_shared<LentMemory>()) {}

  void add(DeviceWork work);
  // Whether to call set_clock() before watched work is enqueued. It relates the GPU's clock to the host's.
  bool needs_clock() const { return work_.empty() || clock_ == nullptr; }
  void set_clock(Event now);  // an event that has just come
  // Reports finished work to counters and listeners, and removes it. Returns a failure if there is one.
  Failure look();
  // Only the failure; for use inside an operation.
  Failure failure() const;
  // Whether no more work should be added. A host far ahead of its GPU would wait for memory and for room in the GPU's queues,
  // and could not notice failures.
  bool is_full() const { return work_.size() >= kMost || (!work_.empty() && lent_->has_surplus()); }
  // How long the engine may sleep before the next look().
  std::chrono::microseconds until_next_look() const;
  // Waits until all work is done and calls `attend` meanwhile. Fails also if no work ends for kGpuFarewell.
  Failure finish(const ProgressCallback& attend = [] {});
  void forget();  // after a failure: drops all work without reporting it

  std::string first() const { return work_.empty() ? "" : work_.front().description; }
  uint64_t ended() const { return ended_; }  // number of finished works

  const std::shared_ptr<LentMemory>& lent() const { return lent_; }
  int watched() const { return watched_; }  // any thread: number of works with listeners

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
  TimePoint last_done_;  // end of the last watched work
};

}  // namespace hvd
