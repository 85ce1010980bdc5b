// The one GPU that a rank uses: that of its first GPU tensor. Until there is one, nothing of CUDA is opened.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "collective/device/device_workspace.h"
#include "device/device.h"
#include "schedule/submission.h"

namespace hvd {

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

}  // namespace hvd
