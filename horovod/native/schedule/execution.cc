#include "schedule/execution.h"

#include <cstring>
#include <utility>

#include "base/error.h"
#include "schedule/operations.h"

namespace hvd {

void Execution::carry_out(const Response& response, ProcessSet& set) {
  if (response.kind == ResponseKind::kRefuse) return refuse(set, response);
  if (response.kind == ResponseKind::kDecided) return answer_question(set, response);
  if (response.kind == ResponseKind::kRelease) return parts_.handles.release(set.handle_of(response.items.front().name));
  if (response.begins || !set.has_begun()) return run_together(set, response.items, response.begins);
  give_out(set, set.take_begun(response.items));
}

// `begins`: the rank starts it before rank 0's response.
void Execution::run_together(ProcessSet& set, const std::vector<Item>& items, bool begins) {
  parts_.submissions.note_answer();
  std::vector<Agreed> together;
  try {
    set.take(items, &together);
  } catch (const std::exception& error) {
    fail_all(together, Failure::of(error));
  }
  try {
    const LivenessMonitor::Work work(parts_.liveness, together);
    is_inside_begun_ = begins;
    Result result = run(set, together);
    is_inside_begun_ = false;
    CarriedOut done{std::move(together), std::move(result)};
    if (!begins) return give_out(set, done);
    set.keep_begun(std::move(done));
  } catch (const std::exception& error) {
    parts_.transport.cancel();  // callers may free the tensors when their handles fail
    hooks_.on_failure();        // before the abort lets the GPU continue: callers check for failure after they copy results
    parts_.sets.abort_gpu();
    const Failure cause = Failure::of(error);
    const bool is_own = cause.kind == ErrorKind::TensorChanged || cause.said == Said::no_memory;
    const Failure heard = is_own ? Failure() : hooks_.reason_heard();
    const std::string& tensor = together.front().submission.request.name;
    const int rank = parts_.transport.rank();
    fail_all(together, heard.is_any() ? heard : failed(tensor, description_of(together), rank, cause));
  }
}

void Execution::fail_all(std::span<const Agreed> together, const Failure& why) {
  const Failure reason = parts_.settings.elastic ? why.without_end() : why;
  parts_.submissions.close(reason);  // before any caller can learn of the failure
  for (const Agreed& agreed : together) parts_.handles.fail(agreed.submission.handle, reason);
  throw InternalError(reason);
}

Result Execution::run(ProcessSet& set, std::span<Agreed> together) {
  const Request& request = together.front().submission.request;
  if (request.operation == Operation::kRemoveProcessSet) remove_set(static_cast<int>(request.set.at(0)));
  Result result = set.executor()->run(together);
  if (request.operation == Operation::kTune) {
    tune(request.text);
    result.bytes = request.text.size();
    result.data.reset(new std::byte[result.bytes]);
    std::memcpy(result.data.get(), request.text.data(), result.bytes);
  }
  if (request.operation == Operation::kAddProcessSet) {
    result.rows = {parts_.sets.add({request.set.begin(), request.set.end()})};
    hooks_.on_set_added();
  }
  return result;
}

void Execution::give_out(const ProcessSet& set, const CarriedOut& done) {
  parts_.submissions.release_names(set, done.together);
  for (const Agreed& agreed : done.together) {
    Result result = done.result;
    result.is_completed = agreed.is_completed;
    parts_.handles.complete(agreed.submission.handle, std::move(result));
  }
}

void Execution::refuse(ProcessSet& set, const Response& response) {
  parts_.submissions.note_answer();
  const std::vector<Agreed> refused = set.take_present(response.items);
  parts_.submissions.release_names(set, refused);
  set.count_refusals(refused.size());
  for (const Agreed& agreed : refused) parts_.handles.fail(agreed.submission.handle, response.error);
}

// All ranks of the set receive the answer; only the rank that asked has the submission.
void Execution::answer_question(ProcessSet& set, const Response& response) {
  parts_.submissions.note_answer();
  const std::vector<Agreed> asked = set.take_present(response.items);
  parts_.submissions.release_names(set, asked);
  for (const Agreed& one : asked) {
    Result result;
    result.rows = one.rows;
    parts_.handles.complete(one.submission.handle, std::move(result));
  }
}

// All ranks do this between the same two operations.
void Execution::tune(const std::string& lines) {
  parts_.settings.tune(lines);
  for (const auto& [serial, set] : parts_.sets.all()) set->tune(lines);
  parts_.transport.use_connections(static_cast<int>(parts_.settings.tcp_connections));
  parts_.submissions.tune(parts_.settings);
  MutexLock lock(mutex_);
  if (!lines.empty()) tuned_ = lines;
}

std::string Execution::tuned() const {
  MutexLock lock(mutex_);
  return tuned_;
}

void Execution::remove_set(int id) {
  const Failure failure = parts_.in_flight.finish(parts_.gpu.progress_callback());  // before the communicator is destroyed
  if (failure.is_any()) throw InternalError(failure);
  const ProcessSets::Pointer set = parts_.sets.remove(id);
  std::vector<Submission> orphans = set->take_all();
  for (Submission& one : parts_.submissions.take_of(set)) orphans.push_back(std::move(one));
  for (const Submission& orphan : orphans) {
    parts_.handles.fail(orphan.handle,
                        {Said::set_removed, {.tensor = orphan.request.name, .others = {{"set", set->to_text()}}}});
  }
}

void Execution::stop(const Failure& reason, bool is_cut) {
  parts_.submissions.close(reason);
  const std::vector<Submitted> submitted = parts_.submissions.take_all();
  if (is_cut) parts_.sets.abort_gpu();  // first: freeing memory waits for the GPU, which may wait for a peer
  parts_.in_flight.forget();
  for (const Submitted& one : submitted) parts_.handles.fail(one.submission.handle, reason);
  for (const auto& [serial, set] : parts_.sets.all()) {
    for (const Submission& submission : set->take_all()) parts_.handles.fail(submission.handle, reason);
  }
  parts_.sets.close_gpu();
  parts_.gpu.close();
}

}  // namespace hvd
