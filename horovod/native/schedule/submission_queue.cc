#include "schedule/submission_queue.h"

#include <algorithm>
#include <utility>

namespace hvd {

void SubmissionQueue::tune(const Settings& settings) {
  fusion_threshold_ = settings.fusion_threshold;
  cycle_ = std::chrono::microseconds(static_cast<int64_t>(settings.cycle_time * 1000));
}

void SubmissionQueue::add(Queued queued, TimePoint now) {
  latest_ = now;
  if (queue_.empty()) since_ = now;
  bytes_ += queued.submission.request.bytes();
  queue_.push_back(std::move(queued));
}

// A cycle after the first submission; while they come in quick succession, when the series ends, but soon. While nothing of
// what was announced before has been answered another rank is late, and one more announcement would only cost: then later.
SubmissionQueue::TimePoint SubmissionQueue::due(bool is_unanswered) const {
  if (is_unanswered) return since_ + 20 * cycle_;
  return std::max(since_ + cycle_, std::min(latest_ + cycle_ / 4, since_ + 4 * cycle_));
}

std::vector<Queued> SubmissionQueue::take_all() {
  bytes_ = 0;
  return std::exchange(queue_, {});
}

std::vector<Submission> SubmissionQueue::take_of(const ProcessSets::Pointer& set) {
  const auto theirs = std::stable_partition(queue_.begin(), queue_.end(), [&](const Queued& one) { return one.set != set; });
  std::vector<Submission> taken;
  for (auto one = theirs; one != queue_.end(); ++one) taken.push_back(std::move(one->submission));
  queue_.erase(theirs, queue_.end());
  return taken;
}

}  // namespace hvd
