#include "schedule/rank_gpu.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "base/error.h"
#include "device/device_library.h"

namespace hvd {

Device& RankGpu::take(int index) {
  Device* used = device_.load(std::memory_order_acquire);
  if (used != nullptr) return *used;
  Device& wanted = device_library().at(index);
  return device_.compare_exchange_strong(used, &wanted) ? wanted : *used;
}

void RankGpu::admit(Submission* submission) {
  Device& device = take(submission->device);
  if (device.index() != submission->device) {
    throw InvalidArgument("'" + submission->request.name + "' is on GPU " + std::to_string(submission->device) + ", and rank " +
                          std::to_string(rank_) + " uses GPU " + std::to_string(device.index()) +
                          "; all GPU tensors of a rank must be on one: call torch.cuda.set_device() with the rank's number on "
                          "its host, as hvd.local_rank(), and put model and data there");
  }
  std::vector<Stream> streams;
  for (const TensorRef& tensor : submission->tensors) {
    if (std::find(streams.begin(), streams.end(), tensor.stream) == streams.end()) streams.push_back(tensor.stream);
  }
  for (const Stream stream : streams) submission->ready.push_back(device.record(stream));
}

const std::shared_ptr<DeviceWorkspace>& RankGpu::workspace() {
  if (workspace_ != nullptr) return workspace_;
  if (device_.load() == nullptr && device_library().count() == 0) {
    throw InvalidArgument("rank " + std::to_string(rank_) +
                          " has joined, and sees no GPU to take part in the operations of GPU tensors with; let it see one "
                          "(CUDA_VISIBLE_DEVICES)");
  }
  const int own_place = device_.load() == nullptr ? local_rank_ % device_library().count() : 0;
  Device& device = take(own_place);
  device.adopt_thread();
  return workspace_ = std::make_shared<DeviceWorkspace>(device, attend_);
}

void RankGpu::quiesce() {
  if (workspace_ == nullptr) return;
  constexpr std::chrono::seconds kPatience{5};  // callers' streams have to come to what the core waits for, too
  try {
    await_for_a_while(workspace_->device(), {workspace_->stream(), workspace_->wire()}, kPatience);
  } catch (const InternalError&) {
    // A GPU that fails writes nowhere any more.
  }
}

}  // namespace hvd
