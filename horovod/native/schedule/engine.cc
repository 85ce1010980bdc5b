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

}  // namespace

Engine::Engine(Transport& transport, const Settings& settings, Drive drive, bool in_order)
    : transport_(transport),
      settings_(settings),
      log_(settings, transport.rank()),
      drive_(drive),
      coordinates_(transport.rank() == 0),
      in_order_(in_order),
      core_(core_for(settings.thread_affinity, transport.topology().local_rank)),
      observers_(settings, transport.rank(), log_),
      gpu_(transport.rank(), transport.topology().local_rank,
           [this] {
             transport_.attend();
             if (const std::string failure = in_flight_.failure(); !failure.empty()) throw InternalError(failure);
           }),
      in_flight_(transport.rank()),
      sets_({transport_, settings_, log_, observers_.listeners(), resolve_simd_level(settings.simd), gpu_, in_flight_,
             *results_, in_order}),
      vigil_(transport, sets_, in_flight_, observers_.stall_limits(), log_),
      gathered_(settings_) {
  HVD_LOG(log_, kInfo, "rank " << transport.rank() << " of " << transport.size() << " over " << transport.name());
  transport_.inspect_while_waiting([this] {
    vigil_.look_inside(now());
    if (in_order_) listen_inside();
  });
  if (in_order_ && coordinates_) transport_.serve_while_waiting([this] { serve_others(); });
  if (drive_ == Drive::kThread) thread_ = std::thread(&Engine::run, this);
}

Engine::~Engine() { shutdown(); }

Engine::TimePoint Engine::now() const { return drive_ == Drive::kThread ? steady_clock::now() : manual_now_; }

// ---- called by the training threads ---------------------------------------------------------------------------------

int64_t Engine::submit(int process_set, Submission submission) {
  int64_t handle;
  bool must_wake;
  if (submission.request.on_gpu) gpu_.admit(&submission);
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
    submission.begins_batch = std::exchange(is_new_batch_, held_ == 0);
    submission.submitted = steady_clock::now();
    must_wake = gathered_.is_empty();
    // Nobody does these and goes on with something else.
    if (!is_repeated(submission.request.operation)) somebody_waits_ = true;
    gathered_.add({set, std::move(submission)}, now());
    // The engine sleeps at most until the cycle ends; only what ends it sooner is worth waking it for.
    must_wake = must_wake || must_announce();
  }
  if (must_wake) transport_.wake();
  return handle;
}

void Engine::hold() {
  MutexLock lock(mutex_);
  ++held_;
  is_new_batch_ = true;
}

void Engine::let_go() {
  {
    MutexLock lock(mutex_);
    if (--held_ != 0) return;
    is_new_batch_ = true;
    if (gathered_.is_empty()) return;
    somebody_waits_ = true;
  }
  transport_.wake();
}

std::optional<Result> Engine::wait(int64_t handle, microseconds timeout) {
  if (!handles_.has_result(handle)) hurry();
  return handles_.wait(handle, timeout);
}

HandleTable::Seen Engine::wait_for_result(int64_t handle, microseconds timeout, bool in_hurry) {
  if (in_hurry && !handles_.has_result(handle)) hurry();
  return handles_.wait_for_result(handle, timeout);
}

void Engine::hurry() {
  caller_is_blocked_ = true;
  if (!somebody_waits_.exchange(true)) transport_.wake();
}

void Engine::note_blocked(int64_t handle, bool may_yield) {
  {
    MutexLock lock(mutex_);
    blocked_[handle] = may_yield;
  }
  transport_.wake();
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
  if (drive_ == Drive::kManual && !is_stopped_) end("");
}

void Engine::stop_timeline() {
  const auto deadline = steady_clock::now() + std::chrono::seconds(10);
  while (drive_ == Drive::kThread && in_flight_.watched() != 0 && !is_stopped_ && steady_clock::now() < deadline) {
    std::this_thread::sleep_for(microseconds(500));
  }
  observers_.stop_timeline();
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
    transport_.abandon(vigil_.lost());
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
  if (const std::string failure = in_flight_.look(); !failure.empty()) throw InternalError(failure);
  progressed |= obey_orders();
  // Only with nothing left to obey is this rank's cache what the coordinator takes it for.
  if (orders_.empty() && !is_stopped_) progressed |= announce() || report_blocked();
  if (coordinates_ && !is_stopped_) {
    progressed |= issue();
    release_deadlocked();
  }
  progressed |= obey_orders();
  inspect_stalls();
  return progressed;
}

void Engine::sleep() {
  microseconds limit = kIdle;
  {
    MutexLock lock(mutex_);
    if (orders_.empty() && !gathered_.is_empty() && held_ == 0) {
      limit = std::max(microseconds(0), std::chrono::duration_cast<microseconds>(gathered_.due(is_unanswered_) - now()));
    }
  }
  limit = std::min(limit, in_flight_.until_next_look());
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
    for (Verdict& verdict : read_verdicts(message.bytes, message.from)) orders_.push_back(std::move(verdict));
    return;
  }
  for (const Announcement& announcement : read_announcements(message.bytes, message.from)) hear(message.from, announcement);
}

void Engine::hear(int from, const Announcement& announcement) {
  const ProcessSets::Pointer set = sets_.by_serial(announcement.set);
  // Null: removed meanwhile, as the rank will find out by itself; or, where others are ahead of this rank, not yet added.
  if (set == nullptr && !sets_.has_existed(announcement.set)) early_.push_back({from, announcement});
  if (set == nullptr) return;
  if (!announcement.blocked_on.empty()) {
    return deadlocks_.block({from, announcement.set, announcement.blocked_on, announcement.may_yield});
  }
  if (announcement.answers == 0) deadlocks_.unblock(from);
  const std::vector<uint32_t> unknown = set->hear(from, announcement, now());
  if (unknown.empty()) return;
  ByteWriter writer;
  transport_.post(from, write({Verdict{announcement.set, VerdictKind::kAskInFull, {}, unknown, ""}}, &writer));
}

bool Engine::must_announce() {
  if (leaving_ && !told_leaving_) return true;
  if (gathered_.is_empty() || held_ != 0) return false;
  return somebody_waits_ || gathered_.is_enough() || now() >= gathered_.due(is_unanswered_);
}

bool Engine::announce() {
  std::vector<Queued> queued;
  bool is_leaving;
  {
    MutexLock lock(mutex_);
    if (!must_announce()) {
      if (gathered_.is_empty()) somebody_waits_ = false;
      return false;
    }
    somebody_waits_ = false;
    queued = gathered_.take_all();
    is_leaving = leaving_ && !told_leaving_;
    told_leaving_ = leaving_;
  }
  is_unanswered_ = !queued.empty();
  std::map<uint32_t, std::vector<Submission>> by_set;
  for (Queued& one : queued) by_set[one.set->serial()].push_back(std::move(one.submission));
  if (is_leaving) by_set.try_emplace(0);
  std::vector<Announcement> announcements;
  for (auto& [serial, submissions] : by_set) {
    const ProcessSets::Pointer set = sets_.by_serial(serial);
    announcements.push_back(set->announce(std::move(submissions), serial == 0 && by_set.size() == 1 && !is_leaving));
    announcements.back().is_leaving = is_leaving && serial == 0;
    for (Verdict& run : set->runs_of(announcements.back())) orders_.push_back(std::move(run));
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

// Tells the coordinator for which operations callers wait, if it has not answered them yet.
bool Engine::report_blocked() {
  std::map<int64_t, bool> blocked;
  {
    MutexLock lock(mutex_);
    if (blocked_.empty() || !gathered_.is_empty()) return false;  // what they wait for is announced first
    blocked.swap(blocked_);
  }
  for (const auto& [handle, may_yield] : blocked) {
    for (const auto& [serial, set] : sets_.all()) {
      const std::string* name = set->name_of(handle);
      if (name == nullptr) continue;
      Announcement report;
      report.set = serial;
      report.blocked_on = *name;
      report.may_yield = may_yield;
      if (coordinates_) {
        hear(0, report);
      } else {
        ByteWriter writer;
        transport_.post(0, write({report}, &writer));
      }
    }
  }
  return true;
}

void Engine::release_deadlocked() {
  const auto missing = [this](const BlockedCaller& caller) {
    const ProcessSets::Pointer set = sets_.by_serial(caller.set);
    return set == nullptr ? std::vector<int>{} : set->missing(caller.rank, caller.name);
  };
  for (const BlockedCaller& caller : deadlocks_.take_released(missing)) {
    const Verdict release{caller.set, VerdictKind::kRelease, {{0, caller.name, 0, {}, {}}}, {}, ""};
    if (caller.rank == 0) {
      orders_.push_back(release);
    } else {
      ByteWriter writer;
      transport_.post(caller.rank, write({release}, &writer));
    }
  }
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
  release_deadlocked();
}

// What is carried out may have been begun before all have asked for it: throws InternalError when some do not.
void Engine::listen_inside() {
  while (const std::optional<Message> message = transport_.receive()) hear(*message);
  if (coordinates_) {
    issue();
    end_stalled();
  }
  if (const std::string reason = reason_to_end(); !reason.empty()) throw InternalError(reason);
}

// That the coordinator has given; or "".
std::string Engine::reason_to_end() const {
  for (const Verdict& one : orders_) {
    if (one.kind == VerdictKind::kShutdown && !one.error.empty()) return one.error;
  }
  return "";
}

// After a failure, which may be but the consequence of what the coordinator finds, and tells all at this moment.
std::string Engine::reason_heard() {
  const auto deadline = steady_clock::now() + std::chrono::seconds(1);
  try {
    for (; in_order_ && steady_clock::now() < deadline; std::this_thread::sleep_for(microseconds(500))) listen_inside();
  } catch (const std::exception&) {  // that reason, or that there is nothing more to be heard
  }
  return reason_to_end();
}

void Engine::inspect_stalls() {
  if (is_stopped_) return;
  if (vigil_.is_due(now())) {
    bool is_leaving;
    {
      MutexLock lock(mutex_);
      is_leaving = told_leaving_;
    }
    vigil_.look_between(now(), is_leaving);
  }
  if (end_stalled()) obey_orders();
}

// On the coordinator: whether what ranks have not asked for ends the job. Then it is told to all, and among the orders.
bool Engine::end_stalled() {
  if (!observers_.is_inspection_due(now())) return false;
  std::vector<StalledOperation> incomplete;
  for (const auto& [serial, set] : sets_.all()) {
    for (StalledOperation& one : set->incomplete(now())) incomplete.push_back(std::move(one));
  }
  std::string reason = observers_.inspect(now(), incomplete);
  if (reason.empty()) return false;
  reason += vigil_.accuse(incomplete);
  ByteWriter writer;
  const std::vector<Verdict> verdicts = {{0, VerdictKind::kShutdown, {}, {}, reason}};
  const std::span<const std::byte> bytes = write(verdicts, &writer);
  for (int rank = 1; rank < transport_.size(); ++rank) transport_.post(rank, bytes);
  transport_.flush();
  orders_.assign(verdicts.begin(), verdicts.end());
  return true;
}

// All ranks have come here, after the same operations; or, with an error, the job cannot go on.
void Engine::end(const std::string& error) {
  has_failed_ = has_failed_ || !error.empty();
  const std::string failure = has_failed_ ? "" : in_flight_.finish();
  if (!failure.empty()) return give_up(failure);
  stop(error.empty() ? kShutDown : error);
}

void Engine::accept_no_more(const std::string& reason) {
  MutexLock lock(mutex_);
  if (stopped_because_.empty()) stopped_because_ = reason;
}

void Engine::stop(const std::string& reason) {
  accept_no_more(reason);
  std::vector<Queued> queued;
  {
    MutexLock lock(mutex_);
    queued = gathered_.take_all();
  }
  if (has_failed_) sets_.abort_gpu();  // first: to free memory waits for the GPU, and that perhaps for a peer
  in_flight_.forget();
  for (const Queued& one : queued) handles_.fail(one.submission.handle, reason);
  for (const auto& [serial, set] : sets_.all()) {
    for (const Submission& submission : set->take_all()) handles_.fail(submission.handle, reason);
  }
  orders_.clear();
  sets_.close_gpu();
  gpu_.close();
  is_stopped_ = true;
}

}  // namespace hvd
