#include "schedule/process_set.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "schedule/fusion.h"

namespace hvd {
namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& tensor = "") {
  throw InternalError(Said::coordinator_wrong, {.tensor = tensor, .others = {{"what", what}}});
}

// The prefix of a set's operations in timelines and warnings.
std::string label_of(int id) { return id == 0 ? "" : "process_set_" + std::to_string(id) + "/"; }

}  // namespace

ProcessSet::ProcessSet(const EngineContext& s, int id, uint32_t serial, std::vector<int> ranks)
    : rank_(s.transport.rank()),
      id_(id),
      serial_(serial),
      ranks_(std::move(ranks)),
      simd_(s.simd),
      in_order_(s.in_order),
      fusion_{s.settings.fusion_threshold, s.settings.disable_group_fusion} {
  if (id == 0) HVD_LOG(s.log, kInfo, "links: " << hvd::to_text(s.transport.links()));
  if (rank_ == 0) {
    coordinator_ =
        std::make_unique<Coordinator>(ranks_, label_of(id), s.settings.cache_capacity, fusion_, s.in_order, s.listeners);
  }
  if (std::binary_search(ranks_.begin(), ranks_.end(), rank_)) {
    executor_ = std::make_unique<Executor>(s, ranks_, label_of(id), counters_);
  }
}

void ProcessSet::tune(const std::string& lines) {
  fusion_.tune(lines);
  if (coordinator_ != nullptr && id_ != 0) coordinator_->tune(lines);  // set 0's did so when it responded
  if (executor_ != nullptr) executor_->tune();
}

std::string ProcessSet::to_text() const {
  return "process set " + std::to_string(id_) + " (ranks " + joined(ranks_, ", ", number_text) + ")";
}

// Begins nothing in a set with rounds: inside a begun operation this rank could not take part in the others' rounds.
Announcement ProcessSet::announce(std::vector<Submission> submissions, bool may_begin) {
  Announcement announcement;
  announcement.set = serial_;
  if (!submissions.empty()) announcement.pass = submissions.back().pass;
  may_begin = may_begin && in_order_ && announced_.empty() && !submissions.empty();
  std::vector<uint32_t> batches;
  for (size_t place = 0; place < submissions.size(); ++place) {
    Submission& submission = submissions[place];
    has_rounds_ |= submission.request.follows;
    if (place != 0 && submission.begins_batch) batches.push_back(static_cast<uint32_t>(place));
    may_begin = may_begin && kind_of(submission.request.operation).along_rows == nullptr;
    const uint32_t id = submission.announced_id = mirror_.id_of(submission.request);
    if (id != 0) {
      announcement.ids.push_back(id);
    } else {
      announcement.requests.push_back(submission.request);
      if (in_order_) announcement.places.push_back(static_cast<uint32_t>(place));
    }
    announced_.insert_or_assign(submission.request.name, std::move(submission));
  }
  announcement.is_begun = may_begin && announcement.requests.empty() && !has_rounds_;
  if (announcement.is_begun) {
    announcement.batches = std::move(batches);
    announcement.batches.push_back(static_cast<uint32_t>(announcement.ids.size()));
    counters_.begun += static_cast<int64_t>(announcement.ids.size());
  }
  counters_.announcements += 1;
  counters_.cache_hits += static_cast<int64_t>(announcement.ids.size());
  return announcement;
}

std::vector<Response> ProcessSet::runs_of(const Announcement& begun) const {
  std::vector<Response> runs;
  size_t from = 0;
  for (const size_t to : begun.batches) {
    const auto ids = std::span(begun.ids).subspan(from, to - from);
    std::vector<const Request*> requests;
    for (const uint32_t id : ids) requests.push_back(&mirror_.at(id).request);
    for (Response& run : hvd::runs_of(ids, requests, fusion_)) {
      run.set = serial_;
      run.begins = true;
      runs.push_back(std::move(run));
    }
    from = to;
  }
  return runs;
}

Announcement ProcessSet::announce_in_full(const std::vector<uint32_t>& ids) {
  Announcement announcement;
  announcement.set = serial_;
  announcement.answers = static_cast<uint32_t>(ids.size());
  for (const uint32_t id : ids) {
    for (auto& [name, submission] : announced_) {
      if (submission.announced_id != id) continue;
      submission.announced_id = 0;
      announcement.requests.push_back(submission.request);
    }
  }
  return announcement;
}

const std::string* ProcessSet::name_of(int64_t handle) const {
  for (const auto& [name, submission] : announced_) {
    if (submission.handle == handle) return &name;
  }
  return nullptr;
}

int64_t ProcessSet::handle_of(const std::string& name) const {
  const auto found = announced_.find(name);
  return found == announced_.end() ? 0 : found->second.handle;
}

void ProcessSet::add_announced(std::vector<std::string>* names) const {
  for (const auto& [name, submission] : announced_) names->push_back(label_of(id_) + name);
  for (const CarriedOut& done : begun_) {
    for (const Agreed& agreed : done.together) names->push_back(label_of(id_) + agreed.submission.request.name);
  }
}

// Checks the coordinator's rows for this rank, since they determine the memory that an allgather reads and writes.
void ProcessSet::check_rows(const Request& request, const std::vector<int64_t>& rows) const {
  if (request.operation != Operation::kAllgather) return;
  const size_t own = static_cast<size_t>(std::lower_bound(ranks_.begin(), ranks_.end(), rank_) - ranks_.begin());
  bool is_right = rows.size() == request.shapes.size() * ranks_.size();
  for (size_t t = 0; is_right && t < request.shapes.size(); ++t) {
    is_right = !request.shapes[t].empty() && rows[t * ranks_.size() + own] == request.shapes[t][0];
  }
  if (!is_right) refuse("has other rows of '" + request.name + "' than this rank", request.name);
}

Agreed ProcessSet::take(const Item& item) {
  const CacheMirror::Entry* known = item.id != 0 ? &mirror_.at(item.id) : nullptr;
  const auto found = announced_.find(known ? known->request.name : item.name);
  if (found == announced_.end()) {
    if (item.request) return {stand_in(*item.request, simd_), item.rows};
    refuse("named '" + item.name + "', which this rank has not submitted", item.name);
  }
  Agreed agreed{std::move(found->second), known ? known->rows : item.rows, item.is_completed};
  Request& own = agreed.submission.request;
  if (own.operation == Operation::kTune && item.request) own.text = item.request->text;
  announced_.erase(found);
  if (item.assigned_id != 0) mirror_.remember(item.assigned_id, {agreed.submission.request, item.rows});
  return agreed;
}

void ProcessSet::take(const std::vector<Item>& items, std::vector<Agreed>* taken) {
  taken->reserve(items.size());
  for (const Item& item : items) {
    taken->push_back(take(item));
    const Request &first = taken->front().submission.request, &last = taken->back().submission.request;
    check_rows(last, taken->back().rows);
    if (taken->size() == 1 || may_share_a_bucket(first, last)) continue;
    refuse("has '" + first.name + "' and '" + last.name + "' carried out together, which are unlike");
  }
}

std::vector<Agreed> ProcessSet::take_present(const std::vector<Item>& items) {
  std::vector<Agreed> taken;
  for (const Item& item : items) {
    if (announced_.count(item.name) != 0) taken.push_back(take(item));
  }
  return taken;
}

std::vector<Submission> ProcessSet::take_all() {
  std::vector<Submission> all;
  for (auto& [name, submission] : announced_) all.push_back(std::move(submission));
  announced_.clear();
  for (CarriedOut& done : begun_) {
    for (Agreed& agreed : done.together) all.push_back(std::move(agreed.submission));
  }
  begun_.clear();
  return all;
}

CarriedOut ProcessSet::take_begun(const std::vector<Item>& items) {
  const std::vector<Agreed>& together = begun_.front().together;
  bool is_it = items.size() == together.size();
  for (size_t i = 0; is_it && i < items.size(); ++i) is_it = items[i].id == together[i].submission.announced_id;
  if (!is_it) refuse("speaks of other operations than those this rank has begun");
  CarriedOut done = std::move(begun_.front());
  begun_.pop_front();
  return done;
}

void ProcessSet::forget(const std::vector<uint32_t>& ids) {
  for (const uint32_t id : ids) mirror_.forget(id);
}

std::vector<uint32_t> ProcessSet::on_announcement(int rank, const Announcement& announcement, Coordinator::TimePoint now) {
  return coordinator_->on_announcement(position_of(rank), announcement, now);
}

size_t ProcessSet::position_of(int rank) const {
  const auto position = std::lower_bound(ranks_.begin(), ranks_.end(), rank);
  if (position == ranks_.end() || *position != rank) {
    const std::string what = "asked for an operation of " + to_text() + ", in which it is not";
    throw InternalError(Said::announcement_wrong, {.ranks = {rank}, .others = {{"what", what}}});
  }
  return static_cast<size_t>(position - ranks_.begin());
}

std::vector<Response> ProcessSet::decide() {
  std::vector<Response> responses = coordinator_->decide();
  for (Response& response : responses) response.set = serial_;
  return responses;
}

}  // namespace hvd
