#include "schedule/submissions.h"

#include <algorithm>
#include <utility>

namespace hvd {

void Submissions::tune(const Settings& settings) {
  MutexLock lock(mutex_);
  settings_ = settings;
}

// ---- any thread -----------------------------------------------------------------------------------------------------

Submissions::Added Submissions::add(Submitted submitted, TimePoint now) {
  MutexLock lock(mutex_);
  if (closed_because_.is_any()) throw InternalError(closed_because_);
  const Request& request = submitted.submission.request;
  if (!in_flight_[submitted.set->serial()].insert(request.name).second) {
    throw InvalidArgument(Said::already_in_flight, {.tensor = request.name, .ranks = {submitted.set->rank()}});
  }
  const bool is_first = queue_.empty();
  const int64_t handle = submitted.submission.handle = handles_.open();
  submitted.submission.begins_batch = std::exchange(is_new_batch_, held_ == 0);
  // Callers of the other operations always wait.
  if (!is_repeated(request.operation)) somebody_waits_ = true;
  latest_ = now;
  if (is_first) since_ = now;
  bytes_ += request.bytes();
  queue_.push_back(std::move(submitted));
  return {handle, is_first || are_due(now)};
}

void Submissions::hold() {
  MutexLock lock(mutex_);
  ++held_;
  is_new_batch_ = true;
}

bool Submissions::let_go() {
  MutexLock lock(mutex_);
  if (--held_ != 0) return false;
  is_new_batch_ = true;
  if (!queue_.empty()) somebody_waits_ = true;
  return !queue_.empty();
}

bool Submissions::hurry() {
  MutexLock lock(mutex_);
  return !std::exchange(somebody_waits_, true);
}

void Submissions::note_blocked(int64_t handle, bool may_yield) {
  MutexLock lock(mutex_);
  blocked_[handle] = may_yield;
}

// ---- the engine's thread --------------------------------------------------------------------------------------------

bool Submissions::is_empty() const {
  MutexLock lock(mutex_);
  return queue_.empty();
}

// A cycle after the first submission. If submissions come in quick succession, at the end of the series, after four cycles at
// most. Without a response to the last announcement another rank is late, and an earlier announcement would not help.
Submissions::TimePoint Submissions::due_time() const {
  const std::chrono::microseconds cycle(static_cast<int64_t>(settings_.cycle_time * 1000));
  if (are_unanswered_) return since_ + 20 * cycle;
  return std::max(since_ + cycle, std::min(latest_ + cycle / 4, since_ + 4 * cycle));
}

std::optional<Submissions::TimePoint> Submissions::due() const {
  MutexLock lock(mutex_);
  if (queue_.empty() || held_ != 0) return std::nullopt;
  return due_time();
}

bool Submissions::are_due(TimePoint now) const {
  if (queue_.empty() || held_ != 0) return false;
  return somebody_waits_ || bytes_ >= settings_.fusion_threshold || now >= due_time();
}

std::vector<Submitted> Submissions::take_due(TimePoint now, bool at_once) {
  MutexLock lock(mutex_);
  const bool are_taken = at_once || are_due(now);
  if (are_taken || queue_.empty()) somebody_waits_ = false;
  if (!are_taken) return {};
  are_unanswered_ = !queue_.empty();
  bytes_ = 0;
  return std::exchange(queue_, {});
}

std::vector<Submission> Submissions::take_of(const ProcessSets::Pointer& set) {
  MutexLock lock(mutex_);
  const auto theirs = std::stable_partition(queue_.begin(), queue_.end(), [&](const Submitted& one) { return one.set != set; });
  std::vector<Submission> taken;
  for (auto one = theirs; one != queue_.end(); ++one) taken.push_back(std::move(one->submission));
  queue_.erase(theirs, queue_.end());
  in_flight_.erase(set->serial());
  return taken;
}

void Submissions::note_answer() {
  MutexLock lock(mutex_);
  are_unanswered_ = false;
}

std::map<int64_t, bool> Submissions::take_blocked() {
  MutexLock lock(mutex_);
  return queue_.empty() ? std::exchange(blocked_, {}) : std::map<int64_t, bool>{};
}

void Submissions::release_names(const ProcessSet& set, const std::vector<Agreed>& done) {
  MutexLock lock(mutex_);
  std::unordered_set<std::string>& names = in_flight_[set.serial()];
  for (const Agreed& agreed : done) names.erase(agreed.submission.request.name);
}

void Submissions::close(const Failure& reason) {
  MutexLock lock(mutex_);
  if (!closed_because_.is_any()) closed_because_ = reason;
}

bool Submissions::are_closed() const {
  MutexLock lock(mutex_);
  return closed_because_.is_any();
}

void Submissions::require_open() const {
  MutexLock lock(mutex_);
  if (closed_because_.is_any()) throw InternalError(closed_because_);
}

std::vector<Submitted> Submissions::take_all() {
  MutexLock lock(mutex_);
  return std::exchange(queue_, {});
}

}  // namespace hvd
