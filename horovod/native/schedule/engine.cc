#include "schedule/engine.h"

#include <sys/prctl.h>

#include <new>

#include "base/error.h"
#include "observe/timeline.h"

namespace hvd {
namespace {

using std::chrono::microseconds;
using std::chrono::steady_clock;

constexpr microseconds kIdle{500'000};
constexpr char kShutDown[] =
    "Horovod has been shut down: this rank or another called hvd.shutdown(), or ended. See the other ranks' output for "
    "an exception";

std::vector<std::unique_ptr<Listener>> make_listeners(const Settings& settings, int rank) {
  std::vector<std::unique_ptr<Listener>> listeners;
  if (rank == 0 && !settings.timeline.empty()) {
    listeners.push_back(std::make_unique<Timeline>(settings.timeline, settings.timeline_mark_cycles));
  }
  return listeners;
}

std::vector<Listener*> pointers(const std::vector<std::unique_ptr<Listener>>& owned) {
  std::vector<Listener*> all;
  for (const auto& one : owned) all.push_back(one.get());
  return all;
}

// "'allreduce.x' and 3 others, 1200 bytes, failed on rank 1: ..."
std::string what_failed(const std::vector<Agreed>& together, int rank, const std::exception& error) {
  int64_t bytes = 0;
  for (const Agreed& agreed : together) bytes += agreed.submission.request.bytes();
  std::string text = "'" + together.front().submission.request.name + "'";
  if (together.size() > 1) text += " and " + std::to_string(together.size() - 1) + " others";
  const bool is_memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
  return text + ", " + std::to_string(bytes) + " bytes, failed on rank " + std::to_string(rank) + ": " +
         (is_memory ? "not enough memory" : error.what()) + ". The job cannot go on";
}

}  // namespace

Engine::Engine(Transport& transport, const Settings& settings, Drive drive)
    : transport_(transport),
      settings_(settings),
      log_(settings, transport.rank()),
      drive_(drive),
      coordinates_(transport.rank() == 0),
      listeners_(make_listeners(settings, transport.rank())),
      executor_(transport, resolve_simd_level(settings.simd), counters_, log_, pointers(listeners_)) {
  if (coordinates_) {
    coordinator_ = std::make_unique<Coordinator>(
        transport.size(), settings.cache_capacity,
        FusionRules{settings.fusion_threshold, settings.disable_group_fusion}, pointers(listeners_));
  }
  HVD_LOG(log_, kInfo, "rank " << transport.rank() << " of " << transport.size() << " over " << transport.name());
  if (drive_ == Drive::kThread) thread_ = std::thread(&Engine::run, this);
}

Engine::~Engine() { shutdown(); }

Engine::TimePoint Engine::now() const { return drive_ == Drive::kThread ? steady_clock::now() : manual_now_; }

// ---- called by the training threads ---------------------------------------------------------------------------------

int64_t Engine::submit(Submission submission) {
  int64_t handle;
  bool was_empty;
  {
    MutexLock lock(mutex_);
    if (!stopped_because_.empty()) throw InternalError(stopped_because_);
    const std::string& name = submission.request.name;
    if (!in_flight_.insert(name).second) {
      throw InvalidArgument("'" + name + "' is already in flight on rank " + std::to_string(transport_.rank()) +
                            "; give each pending operation a name of its own, or synchronize the first one before");
    }
    handle = submission.handle = handles_.open();
    was_empty = queue_.empty();
    if (was_empty) queue_since_ = now();
    queue_bytes_ += submission.request.bytes();
    if (submission.request.operation == Operation::kBarrier) somebody_waits_ = true;
    queue_.push_back(std::move(submission));
    // The engine sleeps at most until the cycle ends; only what ends it sooner is worth waking it for.
    was_empty = was_empty || must_announce();
  }
  if (was_empty) transport_.wake();
  return handle;
}

std::optional<Result> Engine::wait(int64_t handle, microseconds timeout) {
  if (!handles_.is_done(handle) && !somebody_waits_.exchange(true)) transport_.wake();
  return handles_.wait(handle, timeout);
}

void Engine::shutdown() {
  {
    MutexLock lock(mutex_);
    leaving_ = true;
  }
  // Only the first call touches the transport: when an engine dies after MPI has ended, its memory is gone.
  if (thread_.joinable()) {
    transport_.wake();
    thread_.join();
  }
  if (drive_ == Drive::kManual) stop(kShutDown);
}

bool Engine::step(microseconds elapsed) {
  manual_now_ += elapsed;
  return !is_stopped_ && round();
}

// ---- the engine's thread --------------------------------------------------------------------------------------------

void Engine::run() {
  prctl(PR_SET_NAME, "horovod-engine");
  prctl(PR_SET_TIMERSLACK, 1000);  // nanoseconds: short sleeps while polling a transport stay short
  try {
    while (!is_stopped_) {
      if (!round() && !is_stopped_) sleep();
    }
  } catch (const std::exception& error) {
    give_up(error.what());
  }
}

// Nothing can be agreed any more: the other ranks must not wait for this one.
void Engine::give_up(const std::string& reason) {
  HVD_LOG(log_, kError, reason);
  has_failed_ = true;
  try {
    transport_.abandon();
  } catch (const std::exception& error) {
    HVD_LOG(log_, kError, "the other ranks could not be told: " << error.what());
  }
  stop(reason);
}

bool Engine::round() {
  bool progressed = false;
  while (!is_stopped_) {
    const std::optional<Message> message = transport_.receive();
    if (!message) break;
    hear(*message);
    progressed = true;
  }
  if (is_stopped_) return true;
  progressed |= announce();
  if (coordinates_) progressed |= decide();
  return progressed;
}

void Engine::sleep() {
  microseconds limit = kIdle;
  {
    MutexLock lock(mutex_);
    if (!queue_.empty()) {
      const auto due = queue_since_ + microseconds(static_cast<int64_t>(settings_.cycle_time * 1000));
      limit = std::max(microseconds(0), std::chrono::duration_cast<microseconds>(due - now()));
    }
  }
  transport_.wait(limit, !announced_.empty());
}

void Engine::hear(const Message& message) {
  if (coordinates_) {
    const std::vector<uint32_t> unknown = coordinator_->hear(message.from, read_announcement(message.bytes));
    if (!unknown.empty()) tell(message.from, {{VerdictKind::kAskInFull, {}, unknown, ""}});
    return;
  }
  for (const Verdict& verdict : read_verdicts(message.bytes)) obey(verdict);
}

bool Engine::must_announce() {
  if (leaving_ && !told_leaving_) return true;
  if (queue_.empty()) return false;
  return somebody_waits_ || queue_bytes_ >= settings_.fusion_threshold ||
         now() - queue_since_ >= std::chrono::duration<double, std::milli>(settings_.cycle_time);
}

bool Engine::announce() {
  Announcement announcement;
  std::vector<Submission> submissions;
  {
    MutexLock lock(mutex_);
    if (!must_announce()) {
      if (queue_.empty()) somebody_waits_ = false;
      return false;
    }
    somebody_waits_ = false;
    submissions.swap(queue_);
    queue_bytes_ = 0;
    announcement.is_leaving = leaving_ && !told_leaving_;
    told_leaving_ = leaving_;
  }
  for (Submission& submission : submissions) {
    const uint32_t id = submission.announced_id = mirror_.id_of(submission.request);
    if (id != 0) announcement.ids.push_back(id);
    else announcement.requests.push_back(submission.request);
    announced_.insert_or_assign(submission.request.name, std::move(submission));
  }
  counters_.announcements += 1;
  counters_.cache_hits += static_cast<int64_t>(announcement.ids.size());
  for (const auto& listener : listeners_) listener->on_round();
  if (coordinates_) {
    coordinator_->hear(0, announcement);  // its own cache is its mirror's: no id can be unknown
  } else {
    ByteWriter writer;
    transport_.post(0, write(announcement, &writer));
  }
  return true;
}

bool Engine::decide() {
  const std::vector<Verdict> verdicts = coordinator_->decide();
  if (verdicts.empty()) return false;
  if (transport_.size() > 1) {
    ByteWriter writer;
    const std::span<const std::byte> bytes = write(verdicts, &writer);
    for (int rank = 1; rank < transport_.size(); ++rank) transport_.post(rank, bytes);
    transport_.flush();  // the others must know before this rank waits for them in a collective
  }
  for (const Verdict& verdict : verdicts) obey(verdict);
  return true;
}

void Engine::tell(int rank, const std::vector<Verdict>& verdicts) {
  ByteWriter writer;
  transport_.post(rank, write(verdicts, &writer));
}

void Engine::announce_in_full(const std::vector<uint32_t>& ids) {
  Announcement announcement;
  for (const uint32_t id : ids) {
    for (auto& [name, submission] : announced_) {
      if (submission.announced_id != id) continue;
      submission.announced_id = 0;
      announcement.requests.push_back(submission.request);
    }
  }
  ByteWriter writer;
  transport_.post(0, write(announcement, &writer));
}

// The submission an item stands for.
Agreed Engine::take(const Item& item) {
  const CacheMirror::Entry* known = item.id != 0 ? &mirror_.at(item.id) : nullptr;
  const auto found = announced_.find(known ? known->request.name : item.name);
  if (found == announced_.end()) {
    throw InternalError("the coordinator named '" + item.name + "', which this rank has not submitted");
  }
  Agreed agreed{std::move(found->second), known ? known->rows : item.rows};
  announced_.erase(found);
  if (item.assigned_id != 0) mirror_.remember(item.assigned_id, {agreed.submission.request, item.rows});
  return agreed;
}

// Names are free again before their callers can learn that they are done.
void Engine::release_names(const std::vector<Agreed>& done) {
  MutexLock lock(mutex_);
  for (const Agreed& agreed : done) in_flight_.erase(agreed.submission.request.name);
}

// All or none: if one cannot be taken, those taken before fail, and nobody waits for them for ever.
std::vector<Agreed> Engine::take_all(const std::vector<Item>& items) {
  std::vector<Agreed> taken;
  taken.reserve(items.size());
  try {
    for (const Item& item : items) taken.push_back(take(item));
  } catch (const std::exception& error) {
    for (const Agreed& agreed : taken) handles_.fail(agreed.submission.handle, error.what());
    throw;
  }
  return taken;
}

void Engine::run_together(const std::vector<Item>& items) {
  const std::vector<Agreed> together = take_all(items);
  try {
    const Result result = executor_.run(together);
    release_names(together);
    for (const Agreed& agreed : together) handles_.complete(agreed.submission.handle, result);
  } catch (const std::exception& error) {
    const std::string reason = what_failed(together, transport_.rank(), error);
    for (const Agreed& agreed : together) handles_.fail(agreed.submission.handle, reason);
    throw InternalError(reason);
  }
}

void Engine::refuse(const Verdict& verdict) {
  const std::vector<Agreed> refused = take_all(verdict.items);
  release_names(refused);
  for (const Agreed& agreed : refused) handles_.fail(agreed.submission.handle, verdict.error);
  counters_.refusals += static_cast<int64_t>(refused.size());
}

void Engine::obey(const Verdict& verdict) {
  switch (verdict.kind) {
    case VerdictKind::kRun:
      return run_together(verdict.items);
    case VerdictKind::kRefuse:
      return refuse(verdict);
    case VerdictKind::kAskInFull:
      return announce_in_full(verdict.ids);
    case VerdictKind::kForget:
      for (const uint32_t id : verdict.ids) mirror_.forget(id);
      return;
    case VerdictKind::kShutdown:
      return stop(kShutDown);
  }
}

void Engine::stop(const std::string& reason) {
  std::vector<Submission> queued;
  {
    MutexLock lock(mutex_);
    if (stopped_because_.empty()) stopped_because_ = reason;
    queued.swap(queue_);
    in_flight_.clear();
  }
  for (const Submission& submission : queued) handles_.fail(submission.handle, reason);
  for (const auto& [name, submission] : announced_) handles_.fail(submission.handle, reason);
  announced_.clear();
  is_stopped_ = true;
}

}  // namespace hvd
