#include "schedule/engine.h"

#include <sys/prctl.h>

#include <new>
#include <utility>

#include "base/affinity.h"
#include "base/cpu_time.h"
#include "base/error.h"

namespace hvd {
namespace {

using std::chrono::microseconds;
using std::chrono::steady_clock;

constexpr microseconds kIdle{500'000};
constexpr char kShutDown[] =
    "Horovod has been shut down: this rank or another called hvd.shutdown(), or ended. See the other ranks' output for "
    "an exception";

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
      core_(core_for(settings.thread_affinity, transport.topology().local_rank)),
      observers_(settings, transport.rank(), log_),
      sets_({transport_, settings_, log_, observers_.listeners(), resolve_simd_level(settings.simd)}) {
  HVD_LOG(log_, kInfo, "rank " << transport.rank() << " of " << transport.size() << " over " << transport.name());
  if (drive_ == Drive::kThread) thread_ = std::thread(&Engine::run, this);
}

Engine::~Engine() { shutdown(); }

Engine::TimePoint Engine::now() const { return drive_ == Drive::kThread ? steady_clock::now() : manual_now_; }

// ---- called by the training threads ---------------------------------------------------------------------------------

int64_t Engine::submit(int process_set, Submission submission) {
  int64_t handle;
  bool must_wake;
  {
    MutexLock lock(mutex_);
    if (!stopped_because_.empty()) throw InternalError(stopped_because_);
    const ProcessSets::Pointer set = sets_.find(process_set);
    const std::string& name = submission.request.name;
    const std::string rank = "rank " + std::to_string(transport_.rank());
    if (!set->is_member()) {
      throw InvalidArgument("'" + name + "': " + rank + " is not in " + set->to_text() +
                            "; call the operation on its ranks only");
    }
    settle(&submission, set->ranks());
    if (!set->names_in_flight.insert(name).second) {
      throw InvalidArgument("'" + name + "' is already in flight on " + rank +
                            "; give each pending operation a name of its own, or synchronize the first one before");
    }
    handle = submission.handle = handles_.open();
    submission.submitted = steady_clock::now();
    must_wake = queue_.empty();
    queue_latest_ = now();
    if (must_wake) queue_since_ = queue_latest_;
    queue_bytes_ += submission.request.bytes();
    // Nobody does these and goes on with something else.
    if (!is_repeated(submission.request.operation)) somebody_waits_ = true;
    queue_.push_back({set, std::move(submission)});
    // The engine sleeps at most until the cycle ends; only what ends it sooner is worth waking it for.
    must_wake = must_wake || must_announce();
  }
  if (must_wake) transport_.wake();
  return handle;
}

std::optional<Result> Engine::wait(int64_t handle, microseconds timeout) {
  if (handles_.is_done(handle)) return handles_.wait(handle, timeout);
  caller_is_blocked_ = true;
  if (!somebody_waits_.exchange(true)) transport_.wake();
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
  const bool progressed = !is_stopped_ && round();
  observers_.on_idle();
  return progressed;
}

microseconds Engine::cpu_time() {
  // After the end there is no thread to ask.
  return is_stopped_ ? microseconds(0) : std::chrono::duration_cast<microseconds>(cpu_time_of(thread_));
}

// ---- the engine's thread --------------------------------------------------------------------------------------------

void Engine::run() {
  prctl(PR_SET_NAME, "horovod-engine");
  prctl(PR_SET_TIMERSLACK, 1000);  // nanoseconds: short sleeps while polling a transport stay short
  try {
    if (core_) pin_this_thread(*core_);
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
  if (!coordinates_) return progressed;
  progressed |= issue();
  while (!orders_.empty() && !is_stopped_) {
    transport_.flush();  // the others must know before this rank waits for them in a collective
    const Verdict verdict = std::move(orders_.front());
    orders_.pop_front();
    obey(verdict);
  }
  inspect_stalls();
  return progressed;
}

void Engine::sleep() {
  microseconds limit = kIdle;
  {
    MutexLock lock(mutex_);
    if (!queue_.empty()) {
      limit = std::max(microseconds(0), std::chrono::duration_cast<microseconds>(queue_due() - now()));
    }
  }
  observers_.on_idle();
  // Staying awake for an answer takes a core from the training threads: worth it only where one of them waits, or has just
  // waited and is likely to again.
  bool is_pending = false;
  for (const auto& [serial, set] : sets_.all()) is_pending |= set->is_waiting();
  const bool eager = caller_is_blocked_;
  if (!is_pending) caller_is_blocked_ = false;
  transport_.wait(limit, eager);
}

void Engine::hear(const Message& message) {
  if (!coordinates_) {
    for (const Verdict& verdict : read_verdicts(message.bytes)) obey(verdict);
    return;
  }
  for (const Announcement& announcement : read_announcements(message.bytes)) hear(message.from, announcement);
}

void Engine::hear(int from, const Announcement& announcement) {
  const ProcessSets::Pointer set = sets_.by_serial(announcement.set);
  // Null: removed meanwhile, as the rank will find out by itself; or, where others are ahead of this rank, not yet added.
  if (set == nullptr && !sets_.has_existed(announcement.set)) early_.push_back({from, announcement});
  if (set == nullptr) return;
  const std::vector<uint32_t> unknown = set->hear(from, announcement, now());
  if (unknown.empty()) return;
  ByteWriter writer;
  transport_.post(from, write({Verdict{announcement.set, VerdictKind::kAskInFull, {}, unknown, ""}}, &writer));
}

// A cycle after the first submission; while they come in quick succession, when the series ends, but soon. While nothing of
// what was announced before has been answered another rank is late, and one more announcement would only cost: then later.
Engine::TimePoint Engine::queue_due() const {
  const microseconds cycle(static_cast<int64_t>(settings_.cycle_time * 1000));
  if (is_unanswered_) return queue_since_ + 20 * cycle;
  return std::max(queue_since_ + cycle, std::min(queue_latest_ + cycle / 4, queue_since_ + 4 * cycle));
}

bool Engine::must_announce() {
  if (leaving_ && !told_leaving_) return true;
  if (queue_.empty()) return false;
  return somebody_waits_ || queue_bytes_ >= settings_.fusion_threshold || now() >= queue_due();
}

bool Engine::announce() {
  std::vector<Queued> queued;
  bool is_leaving;
  {
    MutexLock lock(mutex_);
    if (!must_announce()) {
      if (queue_.empty()) somebody_waits_ = false;
      return false;
    }
    somebody_waits_ = false;
    queued.swap(queue_);
    queue_bytes_ = 0;
    is_leaving = leaving_ && !told_leaving_;
    told_leaving_ = leaving_;
  }
  is_unanswered_ = !queued.empty();
  std::map<uint32_t, std::vector<Submission>> by_set;
  for (Queued& one : queued) by_set[one.set->serial()].push_back(std::move(one.submission));
  if (is_leaving) by_set.try_emplace(0);
  std::vector<Announcement> announcements;
  for (auto& [serial, submissions] : by_set) {
    announcements.push_back(sets_.by_serial(serial)->announce(std::move(submissions)));
    announcements.back().is_leaving = is_leaving && serial == 0;
  }
  for (Listener* listener : observers_.listeners()) listener->on_round();
  if (coordinates_) {
    // Rank 0's caches are its mirrors': no id can be unknown.
    for (const Announcement& one : announcements) sets_.by_serial(one.set)->hear(0, one, now());
  } else {
    ByteWriter writer;
    transport_.post(0, write(announcements, &writer));
  }
  return true;
}

// Sends verdicts on what has become ready to all whom they concern, this rank included.
bool Engine::issue() {
  bool progressed = false;
  for (const auto& [serial, set] : sets_.all()) {
    const std::vector<Verdict> verdicts = set->decide();
    if (verdicts.empty()) continue;
    progressed = true;
    ByteWriter writer;
    const std::span<const std::byte> bytes = write(verdicts, &writer);
    for (const int rank : set->ranks()) {
      if (rank != 0) transport_.post(rank, bytes);
    }
    if (set->is_member()) orders_.insert(orders_.end(), verdicts.begin(), verdicts.end());
  }
  return progressed;
}

// While this rank waits in a collective of some ranks, others must be able to go on with theirs.
void Engine::serve_others() {
  while (const std::optional<Message> message = transport_.receive()) hear(*message);
  issue();
}

void Engine::inspect_stalls() {
  if (is_stopped_ || !observers_.is_inspection_due(now())) return;
  std::vector<StalledOperation> incomplete;
  for (const auto& [serial, set] : sets_.all()) {
    for (StalledOperation& one : set->incomplete(now())) incomplete.push_back(std::move(one));
  }
  const std::string reason = observers_.inspect(now(), incomplete);
  if (reason.empty()) return;
  ByteWriter writer;
  const std::vector<Verdict> verdicts = {{0, VerdictKind::kShutdown, {}, {}, reason}};
  const std::span<const std::byte> bytes = write(verdicts, &writer);
  for (int rank = 1; rank < transport_.size(); ++rank) transport_.post(rank, bytes);
  transport_.flush();
  obey(verdicts.front());
}

// Names are free again before their callers can learn that they are done.
void Engine::release_names(ProcessSet& set, const std::vector<Agreed>& done) {
  MutexLock lock(mutex_);
  for (const Agreed& agreed : done) set.names_in_flight.erase(agreed.submission.request.name);
}

void Engine::run_together(ProcessSet& set, const std::vector<Item>& items) {
  is_unanswered_ = false;
  std::vector<Agreed> together;
  auto fail_all = [&](const std::string& reason) {
    for (const Agreed& agreed : together) handles_.fail(agreed.submission.handle, reason);
    throw InternalError(reason);
  };
  try {
    set.take(items, &together);
  } catch (const std::exception& error) {
    fail_all(error.what());
  }
  try {
    const Result result = carry_out(set, together);
    release_names(set, together);
    for (const Agreed& agreed : together) handles_.complete(agreed.submission.handle, result);
  } catch (const std::exception& error) {
    transport_.cancel();  // the tensors' memory goes with their handles
    fail_all(what_failed(together, transport_.rank(), error));
  }
}

Result Engine::carry_out(ProcessSet& set, const std::vector<Agreed>& together) {
  const Request& request = together.front().submission.request;
  if (request.operation == Operation::kRemoveProcessSet) remove_set(static_cast<int>(request.set.at(0)));
  Result result = set.run(together);
  if (request.operation == Operation::kAddProcessSet) {
    result.rows = {sets_.add({request.set.begin(), request.set.end()})};
    if (coordinates_) transport_.serve_while_waiting([this] { serve_others(); });
    for (const auto& [from, announcement] : std::exchange(early_, {})) hear(from, announcement);
  }
  return result;
}

void Engine::refuse(ProcessSet& set, const Verdict& verdict) {
  is_unanswered_ = false;
  const std::vector<Agreed> refused = set.take_present(verdict.items);
  release_names(set, refused);
  set.count_refusals(refused.size());
  for (const Agreed& agreed : refused) handles_.fail(agreed.submission.handle, verdict.error);
}

void Engine::obey(const Verdict& verdict) {
  if (verdict.kind == VerdictKind::kShutdown) {
    has_failed_ = has_failed_ || !verdict.error.empty();
    return stop(verdict.error.empty() ? kShutDown : verdict.error);
  }
  const ProcessSets::Pointer set = sets_.by_serial(verdict.set);
  if (set == nullptr) return;  // removed meanwhile, on all ranks alike
  switch (verdict.kind) {
    case VerdictKind::kRun:
      return run_together(*set, verdict.items);
    case VerdictKind::kRefuse:
      return refuse(*set, verdict);
    case VerdictKind::kAskInFull: {
      ByteWriter writer;
      return transport_.post(0, write({set->announce_in_full(verdict.ids)}, &writer));
    }
    case VerdictKind::kForget:
      return set->forget(verdict.ids);
    case VerdictKind::kShutdown:
      return;  // above
  }
}

void Engine::remove_set(int id) {
  const ProcessSets::Pointer set = sets_.remove(id);
  std::vector<Submission> orphans = set->take_all();
  {
    MutexLock lock(mutex_);
    for (auto one = queue_.begin(); one != queue_.end();) {
      if (one->set != set) {
        ++one;
        continue;
      }
      orphans.push_back(std::move(one->submission));
      one = queue_.erase(one);
    }
  }
  for (const Submission& orphan : orphans) {
    handles_.fail(orphan.handle, "'" + orphan.request.name + "' was pending when its " + set->to_text() + " was removed");
  }
}

void Engine::stop(const std::string& reason) {
  std::vector<Queued> queued;
  {
    MutexLock lock(mutex_);
    if (stopped_because_.empty()) stopped_because_ = reason;
    queued.swap(queue_);
  }
  for (const Queued& one : queued) handles_.fail(one.submission.handle, reason);
  for (const auto& [serial, set] : sets_.all()) {
    for (const Submission& submission : set->take_all()) handles_.fail(submission.handle, reason);
  }
  orders_.clear();
  is_stopped_ = true;
}

}  // namespace hvd
