#include "schedule/engine.h"

#include <sys/prctl.h>

#include <cstring>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/process.h"
#include "base/time_limits.h"
#include "schedule/operations.h"

namespace hvd {
namespace {

using std::chrono::microseconds;
using std::chrono::steady_clock;

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
             if (const Failure failure = in_flight_.failure(); failure.is_any()) throw InternalError(failure);
           }),
      in_flight_(transport.rank()),
      sets_({transport_, settings_, log_, observers_.listeners(), resolve_simd_level(settings.simd), gpu_, in_flight_,
             *results_, in_order}),
      liveness_(transport, sets_, in_flight_, observers_.stall_limits(), log_),
      queue_(settings_) {
  HVD_LOG(log_, kInfo, "rank " << transport.rank() << " of " << transport.size() << " over " << transport.name());
  transport_.inspect_while_waiting([this] {
    liveness_.look_inside(now());
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
    if (stopped_because_.is_any()) throw InternalError(stopped_because_);
    const ProcessSets::Pointer set = sets_.find(process_set);
    const std::string& name = submission.request.name;
    const int rank = transport_.rank();
    if (!set->is_member()) {
      throw InvalidArgument(Said::not_a_member, {.tensor = name, .ranks = {rank}, .others = {{"set", set->to_text()}}});
    }
    settle(&submission, set->ranks());
    if (!set->names_in_flight.insert(name).second) {
      throw InvalidArgument(Said::already_in_flight, {.tensor = name, .ranks = {rank}});
    }
    handle = submission.handle = handles_.open();
    submission.begins_batch = std::exchange(is_new_batch_, held_ == 0);
    submission.submitted = steady_clock::now();
    submission.pass = passes_.begun();
    must_wake = queue_.is_empty();
    // Nobody does these and goes on with something else.
    if (!is_repeated(submission.request.operation)) somebody_waits_ = true;
    queue_.add({set, std::move(submission)}, now());
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
    if (queue_.is_empty()) return;
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

void Engine::note_pass(bool is_in_pass) {
  if (passes_.note(is_in_pass)) transport_.wake();
}

void Engine::shutdown() {
  {
    MutexLock lock(mutex_);
    leaving_ = true;
  }
  MutexLock lock(joining_);  // of several calls at once, too, one joins
  // Only the first call touches the transport: when an engine dies after MPI has ended, its memory is gone.
  if (thread_.joinable()) {
    transport_.wake();
    thread_.join();
  }
  if (drive_ == Drive::kManual && !is_stopped_) end({});
}

bool Engine::has_ended() const {
  MutexLock lock(mutex_);
  return stopped_because_.is_any();
}

void Engine::stop_timeline() {
  const auto deadline = steady_clock::now() + time_limits::kTimelineEnd;
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
    const Failure heard = reason_heard();
    give_up(heard.is_any() ? heard : Failure::of(error));
  }
}

// Nothing can be agreed any more: the other ranks must not wait for this one.
void Engine::give_up(const Failure& why) {
  const Failure reason = settings_.elastic ? why.without_end() : why;
  if (settings_.elastic) {
    HVD_LOG(log_, kInfo, "this world has ended, and hvd.elastic.run() joins the next one: " << reason.text());
  } else {
    HVD_LOG(log_, kError, reason.text());
  }
  has_failed_ = true;
  try {
    transport_.abandon(liveness_.lost());
  } catch (const std::exception& error) {
    const std::string untold = std::string("the other ranks could not be told: ") + error.what();
    if (settings_.elastic) {
      HVD_LOG(log_, kInfo, untold);
    } else {
      HVD_LOG(log_, kError, untold);
    }
  }
  stop(reason);
}

bool Engine::round() {
  bool progressed = false;
  while (!is_stopped_) {
    const std::optional<Message> message = transport_.receive();
    if (!message) break;
    on_message(*message);
    progressed = true;
  }
  if (is_stopped_) return true;
  if (const Failure failure = in_flight_.look(); failure.is_any()) throw InternalError(failure);
  progressed |= carry_out_responses();
  // Only when nothing is left to be carried out is this rank's cache what the coordinator takes it for.
  if (responses_.empty() && !is_stopped_) progressed |= announce() || report_blocked() || answer_pass_queries();
  if (coordinates_ && !is_stopped_) {
    progressed |= issue();
    ask_of_passes();
    release_deadlocked();
  }
  progressed |= carry_out_responses();
  inspect_stalls();
  return progressed;
}

void Engine::sleep() {
  microseconds limit = time_limits::kIdle;
  {
    MutexLock lock(mutex_);
    if (responses_.empty() && !queue_.is_empty() && held_ == 0) {
      limit = std::max(microseconds(0), std::chrono::duration_cast<microseconds>(queue_.due(is_unanswered_) - now()));
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

void Engine::on_responses(const Message& message) {
  ProcessSet& all = *sets_.by_serial(0);
  for (Response& response : read_responses(message.bytes, message.from)) {
    if (response.kind == ResponseKind::kAnnounced && all.has_peers()) {
      all.hear_peer(message.from, response.announced.front());
    } else if (message.from == 0 && response.kind != ResponseKind::kAnnounced) {
      responses_.push_back(std::move(response));
    } else {
      throw InternalError(Said::not_to_say, {.ranks = {message.from}, .others = {{"who", transport_.describe(message.from)}}});
    }
  }
  give_out_agreed();
}

void Engine::on_message(const Message& message) {
  if (!coordinates_) return on_responses(message);
  for (const Announcement& announcement : read_announcements(message.bytes, message.from))
    on_announcement(message.from, announcement);
}

void Engine::on_announcement(int from, const Announcement& announcement) {
  // Now, though it may be heard later: by then the rank may have said that it waits again.
  const bool asks = announcement.blocked_on.empty() && announcement.no_pass_at.empty() && announcement.answers == 0;
  if (asks) deadlocks_.unblock(from);
  const ProcessSets::Pointer set = sets_.by_serial(announcement.set);
  // Null: removed meanwhile, as the rank will find out by itself; or, where others are ahead of this rank, not yet added.
  if (set == nullptr && !sets_.has_existed(announcement.set)) early_.push_back({from, announcement});
  if (set == nullptr) return;
  bool is_later = set->is_ahead(from, announcement);
  for (const auto& [rank, waiting] : later_) is_later = is_later || (rank == from && announcement.answers == 0);
  if (is_later && announcement.blocked_on.empty()) {
    later_.push_back({from, announcement});
  } else {
    hear(from, announcement);
  }
}

void Engine::hear(int from, const Announcement& announcement) {
  const ProcessSets::Pointer set = sets_.by_serial(announcement.set);
  if (!announcement.blocked_on.empty()) {
    set->coordinator().note_waiting(announcement.blocked_on);
    return deadlocks_.block({from, announcement.set, announcement.blocked_on, announcement.may_yield});
  }
  if (!announcement.no_pass_at.empty()) return set->coordinator().on_no_pass(set->position_of(from), announcement.no_pass_at);
  const std::vector<uint32_t> unknown = set->on_announcement(from, announcement, now());
  if (unknown.empty()) return;
  ByteWriter writer;
  transport_.post(from, write({Response{announcement.set, ResponseKind::kAskInFull, {}, unknown, {}}}, &writer));
}

// What waited for others to come where its rank has been. True if any was heard.
bool Engine::hear_later() {
  std::vector<std::pair<int, Announcement>> waiting;
  const size_t before = later_.size();
  for (auto& [from, announcement] : std::exchange(later_, {})) {
    const bool waits = std::ranges::any_of(waiting, [&, rank = from](const auto& one) { return one.first == rank; });
    if (waits || sets_.by_serial(announcement.set)->is_ahead(from, announcement)) {
      waiting.push_back({from, std::move(announcement)});
    } else {
      hear(from, announcement);
    }
  }
  later_ = std::move(waiting);
  return later_.size() != before;
}

bool Engine::must_announce() {
  if (leaving_ && !told_leaving_ && !is_ahead_) return true;
  if (queue_.is_empty() || held_ != 0) return false;
  return somebody_waits_ || queue_.is_enough() || now() >= queue_.due(is_unanswered_);
}

bool Engine::announce() {
  std::vector<Queued> queued;
  bool is_leaving;
  {
    MutexLock lock(mutex_);
    if (!must_announce()) {
      if (queue_.is_empty()) somebody_waits_ = false;
      return false;
    }
    somebody_waits_ = false;
    queued = queue_.take_all();
    is_leaving = leaving_ && !told_leaving_ && !is_ahead_;
    told_leaving_ = told_leaving_ || is_leaving;
  }
  is_unanswered_ = !queued.empty();
  std::map<uint32_t, std::vector<Submission>> by_set;
  for (Queued& one : queued) by_set[one.set->serial()].push_back(std::move(one.submission));
  if (is_leaving) by_set.try_emplace(0);
  std::vector<Announcement> announcements;
  for (auto& [serial, submissions] : by_set) {
    const ProcessSets::Pointer set = sets_.by_serial(serial);
    announcements.push_back(set->announce(std::move(submissions), !sets_.has_existed(1) && !is_leaving));
    announcements.back().is_leaving = is_leaving && serial == 0;
    tell_peers(announcements.back());
    for (Response& run : set->runs_of(announcements.back())) responses_.push_back(std::move(run));
  }
  for (Listener* listener : observers_.listeners()) listener->on_round();
  if (coordinates_) {
    // Rank 0's caches are its mirrors': no id can be unknown.
    for (const Announcement& one : announcements) sets_.by_serial(one.set)->on_announcement(0, one, now());
  } else {
    ByteWriter writer;
    transport_.post(0, write(announcements, &writer));
  }
  return true;
}

// Who has begun the same need not wait for the coordinator to say that all have. Rank 0 hears of it as the coordinator.
void Engine::tell_peers(const Announcement& begun) {
  if (!sets_.by_serial(begun.set)->tells_peers()) return;
  ByteWriter writer;
  std::vector<Response> told(1);
  told.front().kind = ResponseKind::kAnnounced;
  told.front().announced = {begun};
  const std::span<const std::byte> bytes = write(told, &writer);
  for (int rank = 1; rank < transport_.size(); ++rank) {
    if (rank != transport_.rank()) transport_.post(rank, bytes);
  }
}

void Engine::give_out_agreed() {
  const ProcessSets::Pointer all = sets_.by_serial(0);
  if (coordinates_ || !all->tells_peers()) return;
  while (const std::optional<CarriedOut> done = all->take_agreed()) {
    is_ahead_ = true;
    give_out(*all, *done);
  }
}

// Tells the coordinator for which operations callers wait, if it has not answered them yet.
bool Engine::report_blocked() {
  std::map<int64_t, bool> blocked;
  {
    MutexLock lock(mutex_);
    if (blocked_.empty() || !queue_.is_empty()) return false;  // what they wait for is announced first
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
      say_to_coordinator(report);
    }
  }
  return true;
}

void Engine::say_to_coordinator(const Announcement& announcement) {
  if (coordinates_) return on_announcement(0, announcement);
  ByteWriter writer;
  transport_.post(0, write({announcement}, &writer));
}

void Engine::post_to(int rank, Response response) {
  if (rank == 0) return responses_.push_back(std::move(response));
  ByteWriter writer;
  transport_.post(rank, write({std::move(response)}, &writer));
}

// Between passes, when all that was started in them is announced.
bool Engine::answer_pass_queries() {
  if (!passes_.can_answer()) return false;
  {
    MutexLock lock(mutex_);
    if (!queue_.is_empty()) return false;
  }
  for (const Announcement& answer : passes_.take_answers()) say_to_coordinator(answer);
  return true;
}

void Engine::ask_of_passes() {
  for (const auto& [serial, set] : sets_.all()) {
    for (auto& [position, question] : set->coordinator().pass_queries()) {
      post_to(set->ranks()[position], {serial, ResponseKind::kAskOfPass, {{0, std::move(question), 0, {}, {}}}, {}, {}});
    }
  }
}

void Engine::release_deadlocked() {
  bool has_answers = false;
  const auto missing = [this](const BlockedCaller& caller) {
    const ProcessSets::Pointer set = sets_.by_serial(caller.set);
    return set == nullptr ? std::vector<int>{} : set->coordinator().missing(set->position_of(caller.rank), caller.name);
  };
  for (const BlockedCaller& caller : deadlocks_.take_released(missing)) {
    if (sets_.by_serial(caller.set)->coordinator().release(caller.name)) {
      has_answers = true;
      continue;
    }
    post_to(caller.rank, {caller.set, ResponseKind::kRelease, {{0, caller.name, 0, {}, {}}}, {}, {}});
  }
  if (has_answers) issue();
}

// Sends responses on what has become ready to all whom they concern, this rank included.
bool Engine::issue() {
  bool progressed = false;
  do {
    for (const auto& [serial, set] : sets_.all()) {
      const std::vector<Response> responses = set->decide();
      if (responses.empty()) continue;
      progressed = true;
      ByteWriter writer;
      const std::span<const std::byte> bytes = write(responses, &writer);
      for (const int rank : set->ranks()) {
        if (rank != 0) transport_.post(rank, bytes);
      }
      if (set->is_member()) responses_.insert(responses_.end(), responses.begin(), responses.end());
    }
  } while (hear_later());
  return progressed;
}

// While this rank waits in a collective of some ranks, others must be able to go on with theirs.
void Engine::serve_others() {
  while (const std::optional<Message> message = transport_.receive()) on_message(*message);
  issue();
  ask_of_passes();
  release_deadlocked();
}

// What is carried out may have been begun before all have asked for it: throws InternalError when some do not.
void Engine::listen_inside() {
  while (const std::optional<Message> message = transport_.receive()) on_message(*message);
  if (is_inside_begun_) tell_leaving();
  if (coordinates_) {
    issue();
    end_stalled();
  }
  if (const Failure reason = reason_to_end(is_inside_begun_); reason.is_any()) throw InternalError(reason);
}

// Others may never come to what this rank waits in, so they are told now.
void Engine::tell_leaving() {
  {
    MutexLock lock(mutex_);
    if (!leaving_ || told_leaving_) return;
    told_leaving_ = true;
  }
  Announcement last;
  last.is_leaving = true;
  say_to_coordinator(last);
}

// Why the coordinator says that no more will be carried out, if it does. `of_begun`: who has left ends what this rank has begun
// last, or is about to begin, unless a response before has said that all ask for it.
Failure Engine::reason_to_end(bool of_begun) const {
  size_t answered = 0;
  for (const Response& one : responses_) {
    if (one.kind == ResponseKind::kRun && !one.begins) ++answered;
    if (one.kind != ResponseKind::kShutdown) continue;
    if (one.error.is_any()) return one.error;
    return of_begun && answered <= sets_.by_serial(0)->begun_count() ? Failure(Said::shut_down) : Failure();
  }
  return {};
}

// After a failure, which may be but the consequence of what the coordinator finds, and tells all at this moment.
Failure Engine::reason_heard() {
  if (!in_order_) return {};
  if (!failed_at_) failed_at_ = steady_clock::now();
  try {
    while (steady_clock::now() < *failed_at_ + time_limits::kHearsReason) {
      listen_inside();
      std::this_thread::sleep_for(microseconds(500));
    }
  } catch (const std::exception&) {  // that reason, or that there is nothing more to be heard
  }
  return reason_to_end(is_inside_begun_);
}

void Engine::inspect_stalls() {
  if (is_stopped_) return;
  if (liveness_.is_due(now())) {
    bool is_leaving;
    {
      MutexLock lock(mutex_);
      is_leaving = told_leaving_;
    }
    liveness_.look_between(now(), is_leaving);
  }
  if (end_stalled()) carry_out_responses();
}

// On the coordinator: whether what ranks have not asked for ends the job. Then it is told to all, and among the orders.
bool Engine::end_stalled() {
  if (!observers_.is_inspection_due(now())) return false;
  std::vector<StalledOperation> incomplete;
  for (const auto& [serial, set] : sets_.all()) {
    for (StalledOperation& one : set->coordinator().incomplete(now())) incomplete.push_back(std::move(one));
  }
  const StallReport report = observers_.inspect(now(), incomplete);
  if (!report.must_shut_down) return false;
  const std::string text = report.warning + liveness_.accuse(incomplete);
  const Failure reason{Said::stalled, {.ranks = report.missing, .values = report.names, .others = {{"report", text}}}};
  ByteWriter writer;
  const std::vector<Response> responses = {{0, ResponseKind::kShutdown, {}, {}, reason}};
  const std::span<const std::byte> bytes = write(responses, &writer);
  for (int rank = 1; rank < transport_.size(); ++rank) transport_.post(rank, bytes);
  transport_.flush();
  responses_.assign(responses.begin(), responses.end());
  return true;
}

// ---- what rank 0 responds: operations that all ranks have agreed on, and those that they could not ------------------

// Leaves operations for later rounds while the GPU has too much to do: rounds go on meanwhile, and hear of failures.
bool Engine::carry_out_responses() {
  bool progressed = false;
  while (!responses_.empty() && !is_stopped_) {
    if (coordinates_ && in_order_) serve_others();  // perhaps all others wait, before this rank does again
    const bool begins = responses_.front().begins;
    if (responses_.front().kind == ResponseKind::kRun && (begins || in_flight_.is_full())) {
      if (const Failure reason = reason_to_end(begins); reason.is_any()) {  // this or what is in flight may never end
        end(reason.said == Said::shut_down ? Failure() : reason);
        break;
      }
      if (in_flight_.is_full()) break;
    }
    // The others must know before this rank waits for them in a collective.
    if (coordinates_ || in_order_) transport_.flush();
    const Response response = std::move(responses_.front());
    responses_.pop_front();
    carry_out(response);
    progressed = true;
  }
  return progressed;
}

// Names are free again before their callers can learn that they are done.
void Engine::release_names(ProcessSet& set, const std::vector<Agreed>& done) {
  MutexLock lock(mutex_);
  for (const Agreed& agreed : done) set.names_in_flight.erase(agreed.submission.request.name);
}

void Engine::give_out(ProcessSet& set, const CarriedOut& done) {
  release_names(set, done.together);
  for (const Agreed& agreed : done.together) {
    Result result = done.result;
    result.is_completed = agreed.is_completed;
    handles_.complete(agreed.submission.handle, std::move(result));
  }
}

// `begins`: not all have asked for it yet, as far as this rank knows.
void Engine::run_together(ProcessSet& set, const std::vector<Item>& items, bool begins) {
  is_unanswered_ = false;
  std::vector<Agreed> together;
  auto fail_all = [&](const Failure& why) {
    const Failure reason = settings_.elastic ? why.without_end() : why;
    accept_no_more(reason);  // as whoever hears of it expects
    for (const Agreed& agreed : together) handles_.fail(agreed.submission.handle, reason);
    throw InternalError(reason);
  };
  try {
    set.take(items, &together);
  } catch (const std::exception& error) {
    fail_all(Failure::of(error));
  }
  try {
    const LivenessMonitor::Work work(liveness_, together);
    is_inside_begun_ = begins;
    Result result = carry_out(set, together);
    is_inside_begun_ = false;
    CarriedOut done{std::move(together), std::move(result)};
    if (!begins) return give_out(set, done);
    set.keep_begun(std::move(done));
    give_out_agreed();
  } catch (const std::exception& error) {
    transport_.cancel();  // the tensors' memory goes with their handles
    has_failed_ = true;   // before a GPU goes on with what is there: who copies from it looks at this afterwards
    sets_.abort_gpu();
    const Failure cause = Failure::of(error);
    const bool is_own = cause.kind == ErrorKind::TensorChanged || cause.said == Said::no_memory;
    const Failure heard = is_own ? Failure() : reason_heard();
    const std::string& tensor = together.front().submission.request.name;
    fail_all(heard.is_any() ? heard : failed(tensor, description_of(together), transport_.rank(), cause));
  }
}

Result Engine::carry_out(ProcessSet& set, std::span<Agreed> together) {
  const Request& request = together.front().submission.request;
  if (request.operation == Operation::kRemoveProcessSet) remove_set(static_cast<int>(request.set.at(0)));
  Result result = set.run(together);
  if (request.operation == Operation::kTune) {
    tune(request.text);
    result.bytes = request.text.size();
    result.data.reset(new std::byte[result.bytes]);
    std::memcpy(result.data.get(), request.text.data(), result.bytes);
  }
  if (request.operation == Operation::kAddProcessSet) {
    result.rows = {sets_.add({request.set.begin(), request.set.end()})};
    if (coordinates_) transport_.serve_while_waiting([this] { serve_others(); });
    for (const auto& [from, announcement] : std::exchange(early_, {})) on_announcement(from, announcement);
  }
  return result;
}

void Engine::refuse(ProcessSet& set, const Response& response) {
  is_unanswered_ = false;
  const std::vector<Agreed> refused = set.take_present(response.items);
  release_names(set, refused);
  set.count_refusals(refused.size());
  for (const Agreed& agreed : refused) handles_.fail(agreed.submission.handle, response.error);
}

// All ranks of the set hear of it, and one has asked.
void Engine::tell_decided(ProcessSet& set, const Response& response) {
  is_unanswered_ = false;
  const std::vector<Agreed> asked = set.take_present(response.items);
  release_names(set, asked);
  for (const Agreed& one : asked) {
    Result result;
    result.rows = one.rows;
    handles_.complete(one.submission.handle, std::move(result));
  }
}

void Engine::carry_out(const Response& response) {
  if (response.kind == ResponseKind::kShutdown) {
    return end(response.error);
  }
  const ProcessSets::Pointer set = sets_.by_serial(response.set);
  if (set == nullptr) return;  // removed meanwhile, on all ranks alike
  switch (response.kind) {
    case ResponseKind::kRun:
      if (response.begins || !set->has_begun()) return run_together(*set, response.items, response.begins);
      give_out(*set, set->take_begun(response.items));
      is_ahead_ = set->is_ahead();
      return;
    case ResponseKind::kRefuse:
      return refuse(*set, response);
    case ResponseKind::kDecided:
      return tell_decided(*set, response);
    case ResponseKind::kAskInFull: {
      ByteWriter writer;
      return transport_.post(0, write({set->announce_in_full(response.ids)}, &writer));
    }
    case ResponseKind::kRelease:
      return handles_.release(set->handle_of(response.items.front().name));
    case ResponseKind::kAskOfPass:
      return passes_.ask(response.set, response.items.front().name);
    case ResponseKind::kForget:
      return set->forget(response.ids);
    case ResponseKind::kShutdown:
    case ResponseKind::kAnnounced:
      return;  // above, or in on_responses()
  }
}

// All ranks are between the same two operations.
void Engine::tune(const std::string& lines) {
  settings_.tune(lines);
  for (const auto& [serial, set] : sets_.all()) set->tune(lines);
  transport_.use_connections(static_cast<int>(settings_.tcp_connections));
  MutexLock lock(mutex_);
  queue_.tune(settings_);
  if (!lines.empty()) tuned_ = lines;
}

std::string Engine::tuned() const {
  MutexLock lock(mutex_);
  return tuned_;
}

void Engine::remove_set(int id) {
  const Failure failure = in_flight_.finish(gpu_.progress_callback());  // the set's communicator goes with it
  if (failure.is_any()) throw InternalError(failure);
  const ProcessSets::Pointer set = sets_.remove(id);
  std::vector<Submission> orphans = set->take_all();
  {
    MutexLock lock(mutex_);
    for (Submission& one : queue_.take_of(set)) orphans.push_back(std::move(one));
  }
  for (const Submission& orphan : orphans) {
    handles_.fail(orphan.handle, {Said::set_removed, {.tensor = orphan.request.name, .others = {{"set", set->to_text()}}}});
  }
}

// ---- the end ----------------------------------------------------------------------------------------------------

// All ranks have come here, after the same operations; or, with an error, the job cannot go on.
void Engine::end(const Failure& error) {
  has_failed_ = has_failed_ || error.is_any();
  const bool is_cut = has_failed_ || sets_.by_serial(0)->has_begun();  // what a GPU has of it may wait for who has left
  const Failure failure = is_cut ? Failure() : in_flight_.finish();
  if (failure.is_any()) return give_up(failure);
  stop(error.is_any() ? error : Failure(Said::shut_down));
}

void Engine::accept_no_more(const Failure& reason) {
  MutexLock lock(mutex_);
  if (!stopped_because_.is_any()) stopped_because_ = reason;
}

void Engine::stop(const Failure& reason) {
  accept_no_more(reason);
  std::vector<Queued> queued;
  {
    MutexLock lock(mutex_);
    queued = queue_.take_all();
  }
  if (has_failed_ || sets_.by_serial(0)->has_begun())
    sets_.abort_gpu();  // first: to free memory waits for the GPU, and that perhaps for a peer
  in_flight_.forget();
  for (const Queued& one : queued) handles_.fail(one.submission.handle, reason);
  for (const auto& [serial, set] : sets_.all()) {
    for (const Submission& submission : set->take_all()) handles_.fail(submission.handle, reason);
  }
  responses_.clear();
  sets_.close_gpu();
  gpu_.close();
  is_stopped_ = true;
}

}  // namespace hvd
