#include "schedule/rank_gpu.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/time_limits.h"
#include "device/device_library.h"
#include "schedule/operations.h"

namespace hvd {
namespace {

using std::chrono::microseconds;

}  // namespace

Device& RankGpu::take(int index) {
  Device* used = device_.load(std::memory_order_acquire);
  if (used != nullptr) return *used;
  Device& wanted = device_library().at(index);
  return device_.compare_exchange_strong(used, &wanted) ? wanted : *used;
}

void RankGpu::admit(Submission* submission) {
  Device& device = take(submission->device);
  if (device.index() != submission->device) {
    throw InvalidArgument(Said::gpu_of_other_tensors, {.tensor = submission->request.name,
                                                       .ranks = {rank_},
                                                       .others = {{"gpu", submission->device}, {"used", device.index()}}});
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
    throw InvalidArgument(Said::joined_without_gpu, {.ranks = {rank_}});
  }
  const int own_place = device_.load() == nullptr ? local_rank_ % device_library().count() : 0;
  Device& device = take(own_place);
  device.adopt_thread();
  return workspace_ = std::make_shared<DeviceWorkspace>(device, attend_);
}

void RankGpu::quiesce() {
  if (workspace_ == nullptr) return;
  try {
    await_for_a_while(workspace_->device(), {workspace_->stream(), workspace_->wire()}, time_limits::kGpuSettles);
  } catch (const InternalError&) {
    // A failed GPU no longer writes to memory.
  }
}

void InFlight::add(DeviceWork work) {
  if (!work.listening.empty()) watched_ += 1;
  work_.push_back(std::move(work));
  last_added_ = std::chrono::steady_clock::now();
}

void InFlight::set_clock(Event now) {
  clock_ = std::move(now);
  clock_time_ = std::chrono::steady_clock::now();
}

InFlight::TimePoint InFlight::time_of(Device& device, const Event& event) const {
  const std::chrono::duration<double, std::milli> since(device.milliseconds_between(clock_, event));
  return clock_time_ + std::chrono::duration_cast<TimePoint::duration>(since);
}

void InFlight::end(DeviceWork& work) {
  Device& device = work.backend->device();
  const double milliseconds = device.milliseconds_between(work.begun, work.done);
  work.counters->gpu_microseconds += static_cast<int64_t>(milliseconds * 1000);
  work.counters->saturated += work.backend->take_saturated();
  const HostTimes stages = work.backend->take_host_times();
  work.counters->gpu_encode_microseconds += stages.encode;
  work.counters->gpu_copy_to_host_microseconds += stages.copy_to_host;
  work.counters->gpu_reduce_microseconds += stages.reduce;
  work.counters->gpu_copy_back_microseconds += stages.copy_back;
  work.counters->gpu_decode_microseconds += stages.decode;
  work.counters->gpu_whole_microseconds += stages.whole;
  if (work.listening.empty()) return;
  watched_ -= 1;
  const TimePoint begun = time_of(device, work.begun), done = time_of(device, work.done);
  std::vector<GpuActivity>& activities = work.story.activities;
  for (size_t i = 0; i < activities.size(); ++i) {
    activities[i].begin = i == 0 ? begun : std::clamp(activities[i].begin, begun, done);
    activities[i].end = i + 1 < activities.size() ? std::clamp(activities[i + 1].begin, begun, done) : done;
  }
  // The next operation of a tensor is often enqueued before the last one is done.
  work.story.begin = std::min(std::max(work.story.begin, last_done_), begun);
  work.story.end = last_done_ = done;
  activities.insert(activities.begin(), {"WAIT_FOR_DATA", work.story.begin, begun});
  for (Listener* listener : work.listening) listener->on_gpu_work(work.operations, work.story);
}

// Only the first work is under way; the others wait for it.
Failure InFlight::failure() const {
  if (work_.empty()) return {};
  const DeviceWork& first = work_.front();
  const std::string failure = first.backend->failure();
  if (failure.empty()) return {};
  return failed(first.tensor, first.description, rank_, {Said::gpu_failed, {.others = {{"why", failure}}}});
}

Failure InFlight::look() {
  lent_->sweep();
  while (!work_.empty()) {
    DeviceWork& first = work_.front();
    if (Failure found = failure(); found.is_any()) return found;
    if (!first.backend->device().is_done(first.done)) break;
    end(first);
    work_.pop_front();
    ended_ += 1;
  }
  if (work_.empty()) lent_->free_surplus();
  return {};
}

microseconds InFlight::until_next_look() const {
  if (is_full()) return microseconds(100);  // a response waits for room
  if (watched_ != 0) return microseconds(1000);
  if (work_.empty() && !lent_->keeps_any()) return microseconds::max();
  // Soon after an add(), then at growing intervals, since only counters, memory and failures depend on it.
  const auto since = std::chrono::duration_cast<microseconds>(std::chrono::steady_clock::now() - last_added_);
  return std::clamp(since, microseconds(1000), microseconds(100'000));
}

Failure InFlight::finish(const ProgressCallback& attend) {
  auto last_progress = std::chrono::steady_clock::now();
  for (size_t left = work_.size();;) {
    Failure found = look();
    if (found.is_any() || work_.empty()) return found;
    const auto now = std::chrono::steady_clock::now();
    if (std::exchange(left, work_.size()) != work_.size()) last_progress = now;
    if (now - last_progress > time_limits::kGpuFarewell) {
      const Failure late{
          Said::gpu_not_done,
          {.others = {{"seconds", std::chrono::duration_cast<std::chrono::seconds>(time_limits::kGpuFarewell).count()}}}};
      return failed(work_.front().tensor, work_.front().description, rank_, late);
    }
    attend();
    std::this_thread::sleep_for(microseconds(100));
  }
}

void InFlight::forget() {
  work_.clear();
  watched_ = 0;
  lent_->free_idle();
}

}  // namespace hvd
