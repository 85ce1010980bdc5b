#include "schedule/negotiation.h"

#include <string>

#include "base/error.h"

namespace hvd {

Negotiation::Negotiation(Transport& transport, const ProcessSets& sets, BackwardPasses& passes, Observers& observers)
    : transport_(transport), sets_(sets), passes_(passes), observers_(observers), coordinates_(transport.rank() == 0) {}

// ---- messages received ----------------------------------------------------------------------------------------------

bool Negotiation::receive(TimePoint now) {
  bool has_heard = false;
  while (const std::optional<Message> message = transport_.receive()) {
    has_heard = true;
    if (!coordinates_) {
      on_responses(*message);
      continue;
    }
    const auto announcements = read_message<std::vector<Announcement>>(message->bytes, message->from);
    for (const Announcement& one : announcements) on_announcement(message->from, one, now);
  }
  return has_heard;
}

void Negotiation::on_responses(const Message& message) {
  for (Response& response : read_message<std::vector<Response>>(message.bytes, message.from)) {
    if (message.from != 0) {
      throw InternalError(Said::not_to_say, {.ranks = {message.from}, .others = {{"who", transport_.describe(message.from)}}});
    }
    responses_.push_back(std::move(response));
  }
}

void Negotiation::on_announcement(int from, const Announcement& announcement, TimePoint now) {
  // A rank that requests an operation no longer waits, even if this announcement is early.
  const bool asks = announcement.blocked_on.empty() && announcement.no_pass_at.empty() && announcement.answers == 0;
  if (asks) deadlocks_.unblock(from);
  const ProcessSets::Pointer set = sets_.by_serial(announcement.set);
  // Null: the set was removed, as that rank will learn by its own response; or other ranks are ahead and it is not yet added.
  if (set == nullptr && !sets_.has_existed(announcement.set)) early_.push_back({from, announcement});
  if (set == nullptr) return;
  if (!announcement.blocked_on.empty()) {
    set->coordinator().note_waiting(announcement.blocked_on);
    return deadlocks_.block({from, announcement.set, announcement.blocked_on, announcement.may_yield});
  }
  if (!announcement.no_pass_at.empty()) return set->coordinator().on_no_pass(set->position_of(from), announcement.no_pass_at);
  std::vector<uint32_t> unknown = set->on_announcement(from, announcement, now);
  if (!unknown.empty()) post(from, {announcement.set, ResponseKind::kAskInFull, {}, std::move(unknown), {}});
}

void Negotiation::receive_early(TimePoint now) {
  for (const auto& [from, announcement] : std::exchange(early_, {})) on_announcement(from, announcement, now);
}

// ---- announcements --------------------------------------------------------------------------------------------------

void Negotiation::announce(std::vector<Submitted> submitted, bool is_leaving, TimePoint now) {
  std::map<uint32_t, std::vector<Submission>> by_set;
  for (Submitted& one : submitted) by_set[one.set->serial()].push_back(std::move(one.submission));
  if (is_leaving) by_set.try_emplace(0);
  std::vector<Announcement> announcements;
  for (auto& [serial, submissions] : by_set) {
    const ProcessSets::Pointer set = sets_.by_serial(serial);
    announcements.push_back(set->announce(std::move(submissions), !sets_.has_existed(1) && !is_leaving));
    announcements.back().is_leaving = is_leaving && serial == 0;
    for (Response& run : set->runs_of(announcements.back())) responses_.push_back(std::move(run));
  }
  for (Listener* listener : observers_.listeners()) listener->on_round();
  if (coordinates_) {
    // Rank 0's mirror equals its cache, so all ids are known.
    for (const Announcement& one : announcements) sets_.by_serial(one.set)->on_announcement(0, one, now);
  } else {
    transport_.post(0, to_bytes(announcements));
  }
}

void Negotiation::announce_leaving(TimePoint now) {
  Announcement last;
  last.is_leaving = true;
  send(last, now);
}

void Negotiation::report_blocked(const std::map<int64_t, bool>& blocked, TimePoint now) {
  for (const auto& [handle, may_yield] : blocked) {
    for (const auto& [serial, set] : sets_.all()) {
      const std::string* name = set->name_of(handle);
      if (name == nullptr) continue;
      Announcement report;
      report.set = serial;
      report.blocked_on = *name;
      report.may_yield = may_yield;
      send(report, now);
    }
  }
}

bool Negotiation::answer_pass_queries(TimePoint now) {
  if (!passes_.can_answer()) return false;
  for (const Announcement& answer : passes_.take_answers()) send(answer, now);
  return true;
}

void Negotiation::send(const Announcement& announcement, TimePoint now) {
  if (coordinates_) return on_announcement(0, announcement, now);
  transport_.post(0, to_bytes(std::vector{announcement}));
}

bool Negotiation::follow(const Response& response, ProcessSet& set) {
  if (response.kind == ResponseKind::kForget) {
    set.forget(response.ids);
  } else if (response.kind == ResponseKind::kAskOfPass) {
    passes_.ask(response.set, response.items.front().name);
  } else if (response.kind == ResponseKind::kAskInFull) {
    transport_.post(0, to_bytes(std::vector{set.announce_in_full(response.ids)}));
  } else {
    return false;
  }
  return true;
}

// ---- responses of rank 0 --------------------------------------------------------------------------------------------

bool Negotiation::coordinate() {
  if (!coordinates_) return false;
  const bool has_responded = issue();
  ask_of_passes();
  release_deadlocked();
  return has_responded;
}

bool Negotiation::issue() {
  bool has_responded = false;
  for (const auto& [serial, set] : sets_.all()) {
    const std::vector<Response> responses = set->decide();
    if (responses.empty()) continue;
    has_responded = true;
    const std::vector<std::byte> bytes = to_bytes(responses);
    for (const int rank : set->ranks()) {
      if (rank != 0) transport_.post(rank, bytes);
    }
    if (set->is_member()) responses_.insert(responses_.end(), responses.begin(), responses.end());
  }
  return has_responded;
}

void Negotiation::post(int rank, Response response) {
  if (rank == 0) return responses_.push_back(std::move(response));
  transport_.post(rank, to_bytes(std::vector{std::move(response)}));
}

void Negotiation::ask_of_passes() {
  for (const auto& [serial, set] : sets_.all()) {
    for (auto& [position, question] : set->coordinator().pass_queries()) {
      post(set->ranks()[position], {serial, ResponseKind::kAskOfPass, {{0, std::move(question), 0, {}, {}}}, {}, {}});
    }
  }
}

void Negotiation::release_deadlocked() {
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
    post(caller.rank, {caller.set, ResponseKind::kRelease, {{0, caller.name, 0, {}, {}}}, {}, {}});
  }
  if (has_answers) issue();
}

// ---- the end --------------------------------------------------------------------------------------------------------

bool Negotiation::end_stalled(TimePoint now, const LivenessMonitor& liveness) {
  if (!observers_.is_inspection_due(now)) return false;
  std::vector<StalledOperation> incomplete;
  for (const auto& [serial, set] : sets_.all()) {
    for (StalledOperation& one : set->coordinator().incomplete(now)) incomplete.push_back(std::move(one));
  }
  const StallReport report = observers_.inspect(now, incomplete);
  if (!report.must_shut_down) return false;
  const std::string text = report.warning + liveness.accuse(incomplete);
  const Failure reason{Said::stalled, {.ranks = report.missing, .values = report.names, .others = {{"report", text}}}};
  const std::vector<Response> responses = {{0, ResponseKind::kShutdown, {}, {}, reason}};
  const std::vector<std::byte> bytes = to_bytes(responses);
  for (int rank = 1; rank < transport_.size(); ++rank) transport_.post(rank, bytes);
  transport_.flush();
  responses_.assign(responses.begin(), responses.end());
  return true;
}

Failure Negotiation::reason_to_end(bool of_begun) const {
  size_t answered = 0;
  for (const Response& one : responses_) {
    if (one.kind == ResponseKind::kRun && !one.begins) ++answered;
    if (one.kind != ResponseKind::kShutdown) continue;
    if (one.error.is_any()) return one.error;
    return of_begun && answered <= sets_.by_serial(0)->begun_count() ? Failure(Said::shut_down) : Failure();
  }
  return {};
}

}  // namespace hvd
