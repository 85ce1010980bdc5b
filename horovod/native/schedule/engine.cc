#include "schedule/engine.h"

#include <sys/prctl.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/process.h"
#include "base/time_limits.h"

namespace hvd {

using std::chrono::microseconds;
using std::chrono::steady_clock;

EngineParts::EngineParts(Transport& carrier, const Settings& given, bool in_order)
    : transport(carrier),
      settings(given),
      log(settings, transport.rank()),
      observers(settings, transport.rank(), log),
      gpu(transport.rank(), transport.topology().local_rank,
          [this] {
            transport.attend();
            if (const Failure failure = in_flight.failure(); failure.is_any()) throw InternalError(failure);
          }),
      in_flight(transport.rank()),
      sets({transport, settings, log, observers.listeners(), resolve_simd_level(settings.simd), gpu, in_flight, *results,
            in_order}),
      liveness(transport, sets, in_flight, observers.stall_limits(), log),
      submissions(settings, handles) {}

Engine::Engine(Transport& transport, const Settings& settings, Drive drive, bool in_order)
    : parts_(transport, settings, in_order),
      drive_(drive),
      coordinates_(transport.rank() == 0),
      in_order_(in_order),
      core_(core_for(settings.thread_affinity, transport.topology().local_rank)),
      negotiation_(parts_.transport, parts_.sets, parts_.passes, parts_.observers),
      execution_(parts_, {.on_failure = [this] { life_.advance(Life::kFailing); },
                          .reason_heard = [this] { return reason_heard(); },
                          .on_set_added =
                              [this] {
                                if (coordinates_) parts_.transport.serve_while_waiting([this] { coordinate_inside(); });
                                negotiation_.receive_early(now());
                              }}) {
  HVD_LOG(parts_.log, kInfo, "rank " << transport.rank() << " of " << transport.size() << " over " << transport.name());
  parts_.transport.inspect_while_waiting([this] {
    parts_.liveness.look_inside(now());
    if (in_order_) listen_inside();
  });
  if (in_order_ && coordinates_) parts_.transport.serve_while_waiting([this] { coordinate_inside(); });
  if (drive_ == Drive::kThread) thread_ = std::thread(&Engine::run, this);
}

Engine::~Engine() { shutdown(); }

Engine::TimePoint Engine::now() const { return drive_ == Drive::kThread ? steady_clock::now() : manual_now_; }

// ---- called by the training threads ---------------------------------------------------------------------------------

int64_t Engine::submit(int process_set, Submission submission) {
  if (submission.request.on_gpu) parts_.gpu.admit(&submission);
  parts_.submissions.require_open();
  const ProcessSets::Pointer set = parts_.sets.find(process_set);
  if (!set->is_member()) {
    throw InvalidArgument(
        Said::not_a_member,
        {.tensor = submission.request.name, .ranks = {parts_.transport.rank()}, .others = {{"set", set->to_text()}}});
  }
  settle(&submission, set->ranks());
  submission.submitted = steady_clock::now();
  submission.pass = parts_.passes.begun();
  const Submissions::Added added = parts_.submissions.add({set, std::move(submission)}, now());
  if (added.must_wake) parts_.transport.wake();
  return added.handle;
}

void Engine::let_go() {
  if (parts_.submissions.let_go()) parts_.transport.wake();
}

std::optional<Result> Engine::wait(int64_t handle, microseconds timeout) {
  if (!parts_.handles.has_result(handle)) hurry();
  return parts_.handles.wait(handle, timeout);
}

HandleTable::Seen Engine::wait_for_result(int64_t handle, microseconds timeout, bool in_hurry) {
  if (in_hurry && !parts_.handles.has_result(handle)) hurry();
  return parts_.handles.wait_for_result(handle, timeout);
}

void Engine::hurry() {
  caller_is_blocked_ = true;
  if (parts_.submissions.hurry()) parts_.transport.wake();
}

void Engine::note_blocked(int64_t handle, bool may_yield) {
  parts_.submissions.note_blocked(handle, may_yield);
  parts_.transport.wake();
}

void Engine::note_pass(bool is_in_pass) {
  if (parts_.passes.note(is_in_pass)) parts_.transport.wake();
}

void Engine::shutdown() {
  life_.advance(Life::kLeaving);
  MutexLock lock(joining_);  // of concurrent calls, one joins
  // Only the first call uses the transport: the engine may be destroyed after MPI's end, which frees its memory.
  if (thread_.joinable()) {
    parts_.transport.wake();
    thread_.join();
  }
  if (drive_ == Drive::kManual && !life_.is_over()) end({}, false);
}

void Engine::stop_timeline() {
  const auto deadline = steady_clock::now() + time_limits::kTimelineEnd;
  while (drive_ == Drive::kThread && parts_.in_flight.watched() != 0 && !life_.is_over() && steady_clock::now() < deadline) {
    std::this_thread::sleep_for(microseconds(500));
  }
  parts_.observers.stop_timeline();
}

bool Engine::step(microseconds elapsed) {
  manual_now_ += elapsed;
  const bool progressed = !life_.is_over() && round();
  parts_.observers.on_idle();
  return progressed;
}

microseconds Engine::cpu_time() {
  // After the end the thread does not exist.
  return life_.is_over() ? microseconds(0) : std::chrono::duration_cast<microseconds>(cpu_time_of(thread_));
}

// ---- the engine's thread --------------------------------------------------------------------------------------------

void Engine::run() {
  prctl(PR_SET_NAME, "horovod-engine");
  prctl(PR_SET_TIMERSLACK, 1000);  // nanoseconds; keeps the short sleeps between polls short
  try {
    if (core_) pin_this_thread(*core_);
    while (!life_.is_over()) {
      if (!round() && !life_.is_over()) sleep();
    }
  } catch (const std::exception& error) {
    const Failure heard = reason_heard();
    end(heard.is_any() ? heard : Failure::of(error), true);
  }
}

bool Engine::round() {
  bool progressed = negotiation_.receive(now());
  if (const Failure failure = parts_.in_flight.look(); failure.is_any()) throw InternalError(failure);
  progressed |= carry_out_responses();
  // While responses are left, this rank's cache differs from the coordinator's view of it.
  if (negotiation_.responses().empty() && !life_.is_over())
    progressed |= announce() || report_blocked() || answer_pass_queries();
  if (!life_.is_over()) progressed |= negotiation_.coordinate();
  progressed |= carry_out_responses();
  inspect_stalls();
  return progressed;
}

void Engine::sleep() {
  microseconds limit = time_limits::kIdle;
  if (const std::optional<TimePoint> due = parts_.submissions.due(); due && negotiation_.responses().empty()) {
    limit = std::max(microseconds(0), std::chrono::duration_cast<microseconds>(*due - now()));
  }
  limit = std::min(limit, parts_.in_flight.until_next_look());
  parts_.observers.on_idle();
  // Staying awake takes a core from the training threads. That pays only if one of them waits, or has just waited.
  bool is_pending = false;
  for (const auto& [serial, set] : parts_.sets.all()) is_pending |= set->is_waiting();
  const bool eager = caller_is_blocked_;
  if (!is_pending) caller_is_blocked_ = false;
  parts_.transport.wait(limit, eager);
}

bool Engine::announce() {
  // Read before the submissions are taken, so that these include all that were made before shutdown().
  const bool is_leaving = life_.is(Life::kLeaving);
  std::vector<Submitted> due = parts_.submissions.take_due(now(), is_leaving);
  if (due.empty() && !is_leaving) return false;
  if (is_leaving) life_.advance(Life::kToldLeaving);
  negotiation_.announce(std::move(due), is_leaving, now());
  return true;
}

bool Engine::report_blocked() {
  const std::map<int64_t, bool> blocked = parts_.submissions.take_blocked();
  negotiation_.report_blocked(blocked, now());
  return !blocked.empty();
}

// Only between passes, after everything that was started in them has been announced.
bool Engine::answer_pass_queries() {
  return parts_.passes.can_answer() && parts_.submissions.is_empty() && negotiation_.answer_pass_queries(now());
}

// Called while this rank waits in a collective, so that other ranks can continue with theirs.
void Engine::coordinate_inside() {
  negotiation_.receive(now());
  negotiation_.coordinate();
}

// Called while this rank waits in a collective that it may have begun. Throws InternalError if some rank will not request it.
void Engine::listen_inside() {
  coordinate_inside();
  if (execution_.is_inside_begun()) tell_leaving();
  if (coordinates_) negotiation_.end_stalled(now(), parts_.liveness);
  if (const Failure reason = negotiation_.reason_to_end(execution_.is_inside_begun()); reason.is_any()) {
    throw InternalError(reason);
  }
}

// Inside a collective that other ranks may never reach.
void Engine::tell_leaving() {
  if (!life_.is(Life::kLeaving)) return;
  life_.advance(Life::kToldLeaving);
  negotiation_.announce_leaving(now());
}

// After a failure, waits shortly for the coordinator's reason to end the job, of which the failure may be a consequence.
Failure Engine::reason_heard() {
  if (!in_order_) return {};
  if (!failed_at_) failed_at_ = steady_clock::now();
  try {
    while (steady_clock::now() < *failed_at_ + time_limits::kHearsReason) {
      listen_inside();
      std::this_thread::sleep_for(microseconds(500));
    }
  } catch (const std::exception&) {  // the reason has come, or the transport has failed
  }
  return negotiation_.reason_to_end(execution_.is_inside_begun());
}

void Engine::inspect_stalls() {
  if (life_.is_over()) return;
  if (parts_.liveness.is_due(now())) parts_.liveness.look_between(now(), life_.is(Life::kToldLeaving));
  if (negotiation_.end_stalled(now(), parts_.liveness)) carry_out_responses();
}

// Whether a response must wait for a later round because the GPU has too much to do. Ends the engine if it can never be carried
// out.
bool Engine::must_wait(const Response& response) {
  if (response.kind != ResponseKind::kRun || !(response.begins || execution_.is_full())) return false;
  const Failure reason = negotiation_.reason_to_end(response.begins);  // if any, operations in flight may never end
  if (reason.is_any()) end(reason.said == Said::shut_down ? Failure() : reason, false);
  return reason.is_any() || execution_.is_full();
}

bool Engine::carry_out_responses() {
  std::deque<Response>& responses = negotiation_.responses();
  bool progressed = false;
  while (!responses.empty() && !life_.is_over()) {
    if (coordinates_ && in_order_) coordinate_inside();  // others may wait for responses, and this rank may wait next
    if (must_wait(responses.front())) break;
    // Other ranks need this rank's messages before it waits for them in a collective.
    if (coordinates_ || in_order_) parts_.transport.flush();
    const Response response = std::move(responses.front());
    responses.pop_front();
    progressed = true;
    if (response.kind == ResponseKind::kShutdown) {
      end(response.error, false);
    } else if (const ProcessSets::Pointer set = parts_.sets.by_serial(response.set); set == nullptr) {
      continue;  // an earlier response removed the set, on all ranks
    } else if (!negotiation_.follow(response, *set)) {
      execution_.carry_out(response, *set);
    }
  }
  return progressed;
}

// ---- the end --------------------------------------------------------------------------------------------------------

// Whether to abort the GPU's work: it may wait for a rank that has failed or left.
bool Engine::must_cut() const { return life_.has_failed() || parts_.sets.by_serial(0)->has_begun(); }

// `reason`: no failure if all ranks end here after the same operations, else the reason why the job cannot go on. `must_tell`:
// the other ranks do not know it, and would wait for this rank.
void Engine::end(Failure reason, bool must_tell) {
  if (reason.is_any()) life_.advance(Life::kFailing);
  if (!must_cut()) {
    reason = parts_.in_flight.finish();
    must_tell = reason.is_any();
    if (must_tell) life_.advance(Life::kFailing);
  }
  if (must_tell) {
    if (parts_.settings.elastic) reason = reason.without_end();
    tell_others(reason);
  }
  execution_.stop(reason.is_any() ? reason : Failure(Said::shut_down), must_cut());
  negotiation_.responses().clear();
  life_.advance(life_.has_failed() ? Life::kFailed : Life::kEnded);
}

void Engine::tell_others(const Failure& reason) {
  const auto log = [this](const std::string& text) {
    if (parts_.settings.elastic) {
      HVD_LOG(parts_.log, kInfo, text);
    } else {
      HVD_LOG(parts_.log, kError, text);
    }
  };
  log((parts_.settings.elastic ? "this world has ended, and hvd.elastic.run() joins the next one: " : "") + reason.text());
  try {
    parts_.transport.abandon(parts_.liveness.lost());
  } catch (const std::exception& error) {
    log(std::string("the other ranks could not be told: ") + error.what());
  }
}

}  // namespace hvd
