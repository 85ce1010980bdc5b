// What the engine does with verdicts: the operations that all ranks have agreed on, and those that they could not.
#include <utility>

#include "base/error.h"
#include "schedule/engine.h"
#include "schedule/observed.h"

namespace hvd {

// Leaves operations for later rounds while the GPU has too much to do: rounds go on meanwhile, and hear of failures.
bool Engine::obey_orders() {
  bool progressed = false;
  while (!orders_.empty() && !is_stopped_) {
    if (orders_.front().kind == VerdictKind::kRun && in_flight_.is_full()) {
      const Verdict last = orders_.back();
      if (last.kind == VerdictKind::kShutdown && !last.error.empty()) end(last.error);  // what is in flight may never end
      break;
    }
    // The others must know before this rank waits for them in a collective.
    if (coordinates_ || in_order_) transport_.flush();
    const Verdict verdict = std::move(orders_.front());
    orders_.pop_front();
    obey(verdict);
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
  for (const Agreed& agreed : done.together) handles_.complete(agreed.submission.handle, done.result);
}

// `begins`: not all have asked for it yet, as far as this rank knows.
void Engine::run_together(ProcessSet& set, const std::vector<Item>& items, bool begins) {
  is_unanswered_ = false;
  std::vector<Agreed> together;
  auto fail_all = [&](const std::string& reason) {
    accept_no_more(reason);  // as whoever hears of it expects
    for (const Agreed& agreed : together) handles_.fail(agreed.submission.handle, reason);
    throw InternalError(reason);
  };
  try {
    set.take(items, &together);
  } catch (const std::exception& error) {
    fail_all(error.what());
  }
  try {
    const Vigil::Work work(vigil_, together);
    Result result = carry_out(set, together);
    CarriedOut done{std::move(together), std::move(result)};
    begins ? set.keep_begun(std::move(done)) : give_out(set, done);
  } catch (const std::exception& error) {
    transport_.cancel();  // the tensors' memory goes with their handles
    sets_.abort_gpu();
    const std::string heard = reason_heard();
    fail_all(heard.empty() ? failure_text(description_of(together), transport_.rank(), reason_of(error)) : heard);
  }
}

Result Engine::carry_out(ProcessSet& set, std::span<Agreed> together) {
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
    return end(verdict.error);
  }
  const ProcessSets::Pointer set = sets_.by_serial(verdict.set);
  if (set == nullptr) return;  // removed meanwhile, on all ranks alike
  switch (verdict.kind) {
    case VerdictKind::kRun:
      if (verdict.begins || !set->has_begun()) return run_together(*set, verdict.items, verdict.begins);
      return give_out(*set, set->take_begun(verdict.items));
    case VerdictKind::kRefuse:
      return refuse(*set, verdict);
    case VerdictKind::kAskInFull: {
      ByteWriter writer;
      return transport_.post(0, write({set->announce_in_full(verdict.ids)}, &writer));
    }
    case VerdictKind::kRelease:
      return handles_.release(set->handle_of(verdict.items.front().name));
    case VerdictKind::kForget:
      return set->forget(verdict.ids);
    case VerdictKind::kShutdown:
      return;  // above
  }
}

void Engine::remove_set(int id) {
  const std::string failure = in_flight_.finish(gpu_.attention());  // the set's communicator goes with it
  if (!failure.empty()) throw InternalError(failure);
  const ProcessSets::Pointer set = sets_.remove(id);
  std::vector<Submission> orphans = set->take_all();
  {
    MutexLock lock(mutex_);
    for (Submission& one : gathered_.take_of(set)) orphans.push_back(std::move(one));
  }
  for (const Submission& orphan : orphans) {
    handles_.fail(orphan.handle, "'" + orphan.request.name + "' was pending when its " + set->to_text() + " was removed");
  }
}

}  // namespace hvd
