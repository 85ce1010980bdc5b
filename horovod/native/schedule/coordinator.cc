#include "schedule/coordinator.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "collective/reduce.h"

namespace hvd {
namespace {

constexpr size_t kMaxAnchors = 10'000;

// By tensor, then by rank.
std::vector<int64_t> first_dimensions(const std::vector<RankRequest>& requests) {
  std::vector<int64_t> rows;
  for (size_t tensor = 0; tensor < requests.front().request->shapes.size(); ++tensor) {
    for (const RankRequest& one : requests) rows.push_back(one.request->shapes[tensor][0]);
  }
  return rows;
}

}  // namespace

Coordinator::Coordinator(std::vector<int> ranks, std::string label, int64_t cache_capacity, FusionRules rules, bool in_order,
                         std::vector<Listener*> listeners)
    : ranks_(std::move(ranks)),
      label_(std::move(label)),
      listeners_(std::move(listeners)),
      rules_(rules),
      cache_(cache_capacity),
      missing_(ranks_.size()),
      passes_(ranks_.size(), 0),
      begun_(ranks_.size()),
      owed_(ranks_.size(), 0),
      has_joined_(ranks_.size(), false) {
  if (in_order) order_.emplace(ranks_.size());
}

void Coordinator::refuse(size_t position, const std::string& what) const {
  throw InternalError(Said::announcement_wrong, {.ranks = {ranks_[position]}, .others = {{"what", what}}});
}

std::vector<uint32_t> Coordinator::on_announcement(size_t position, const Announcement& announcement, TimePoint now) {
  std::vector<uint32_t> unknown;
  passes_[position] = std::max(passes_[position], announcement.pass);
  if (order_ && announcement.answers == 0) note_order(position, announcement);
  for (const uint32_t id : announcement.ids) {
    if (const Request* request = cache_.request(id, position)) {
      on_request(position, *request, id, now);
    } else {
      unknown.push_back(id);
    }
  }
  owed_[position] += static_cast<uint32_t>(unknown.size());
  for (const Request& request : announcement.requests) on_request(position, request, 0, now);
  if (announcement.answers > owed_[position]) refuse(position, "answered what it was not asked");
  if (announcement.answers != 0) {
    owed_[position] -= announcement.answers;
    complete_without_absent();
  }
  if (announcement.is_begun) note_begun(position, announcement);
  if (announcement.is_leaving) left_ = ranks_[position];
  return unknown;
}

void Coordinator::on_request(size_t position, const Request& request, uint32_t id, TimePoint now) {
  if (request.operation == Operation::kMissing) return on_missing(position, request, now);
  if (request.operation == Operation::kJoin) on_join(position);
  Pending& pending = pending_[request.name];
  if (pending.requests.empty()) {
    pending.requests.resize(ranks_.size());
    pending.ids.resize(ranks_.size(), 0);
    pending.passes.resize(ranks_.size());
    pending.since = now;
    pending.is_join = request.operation == Operation::kJoin;
  }
  if (pending.requests[position]) refuse(position, "asked twice for '" + request.name + "'");
  const bool was_complete = is_complete(pending);
  for (Listener* listener : listeners_) {
    if (!pending.is_told) listener->on_rank_ready(label_ + request.name, name_of(request.operation), ranks_[position]);
  }
  pending.requests[position] = request;
  pending.ids[position] = id;
  pending.passes[position] = passes_[position];
  ++pending.count;
  if (!was_complete && is_complete(pending)) complete_.push_back(request.name);
}

void Coordinator::note_order(size_t position, const Announcement& announcement) {
  const size_t count = announcement.ids.size() + announcement.requests.size();
  if (announcement.places.size() != announcement.requests.size()) refuse(position, "does not say in which order it asks");
  size_t id = 0, request = 0;
  for (size_t place = 0; place < count; ++place) {
    const Request* next = nullptr;
    if (request < announcement.places.size() && announcement.places[request] == place) {
      next = &announcement.requests[request++];
    } else if (id < announcement.ids.size()) {
      next = cache_.request(announcement.ids[id++], position);  // null if forgotten: agrees with all names
    } else {
      refuse(position, "asks in an order that cannot be");
    }
    if (next == nullptr || !next->follows) order_->add(position, next != nullptr ? next->name : "", announcement.is_begun);
  }
}

// For listeners, which are on rank 0, an operation begins when rank 0 begins it.
void Coordinator::note_begun(size_t position, const Announcement& announcement) {
  if (!order_) refuse(position, "begins operations without an answer");
  const std::span<const uint32_t> ids = announcement.ids;
  size_t from = 0;
  for (const size_t to : announcement.batches) {
    if (!begun_.add(position, ids.subspan(from, to - from)) && !broken_.is_any()) {
      const Request* first = cache_.request(ids[from], position);
      broken_ = {
          Said::batches_differ,
          {.tensor = first == nullptr ? "" : first->name, .ranks = {ranks_[position]}, .others = {{"count", to - from - 1}}}};
    }
    for (; from < to; ++from) {
      const Request* request = cache_.request(ids[from], position);
      if (request == nullptr) refuse(position, "begins what it has not been told of");
      if (position == 0) tell_agreed(request->name, &pending_.at(request->name));
    }
  }
}

void Coordinator::tell_agreed(const std::string& name, Pending* pending) const {
  if (std::exchange(pending->is_told, true)) return;
  const auto& requests = pending->requests;
  const auto asked = std::find_if(requests.begin(), requests.end(), [](const auto& request) { return request.has_value(); });
  for (Listener* listener : listeners_) listener->on_agreed(label_ + name, name_of((*asked)->operation));
}

// Refuses all operations of a place at which ranks requested different ones. If a rank has begun its operation, which it cannot
// take back, the job ends instead.
void Coordinator::refuse_out_of_order(std::vector<Response>* responses) {
  for (const OrderCheck::Place& place : order_->take_differing()) {
    Facts started;
    for (size_t position = 0; position < place.names.size(); ++position) {
      if (place.names[position].empty()) continue;
      started.ranks.push_back(ranks_[position]);
      started.values.push_back("'" + place.names[position] + "'");
    }
    Failure error{Said::orders_differ, std::move(started)};
    if (place.is_begun) {
      broken_ = std::move(error);
      return;
    }
    Response& response = responses->emplace_back();
    response.kind = ResponseKind::kRefuse;
    response.error = std::move(error);
    for (const std::string& name : place.names) {
      const auto pending = pending_.find(name);
      if (pending == pending_.end()) continue;
      tell_agreed(name, &pending->second);
      for (Listener* listener : listeners_) listener->on_refused(label_ + name);
      pending_.erase(pending);
      std::erase(complete_, name);
      response.items.push_back({0, name, 0, {}, {}});
    }
  }
}

// Confirms batches that all ranks have requested. Ranks that have not begun a batch carry it out with the same fusion.
void Coordinator::answer_begun(std::vector<Response>* responses) {
  for (; !begun_.is_empty() && !broken_.is_any(); begun_.remove_first()) {
    const BegunBatch& batch = begun_.first();
    std::vector<const Request*> requests;
    for (const uint32_t id : batch.ids) {
      requests.push_back(cache_.request(id, 0));
      const auto pending = pending_.find(requests.back()->name);
      if (pending == pending_.end() || !is_complete(pending->second)) return;
    }
    for (size_t i = 0; i < batch.ids.size(); ++i) {
      const auto pending = pending_.find(requests[i]->name);
      if (std::any_of(pending->second.ids.begin(), pending->second.ids.end(), [&](auto id) { return id != batch.ids[i]; })) {
        std::vector<RankRequest> all;
        for (size_t p = 0; p < ranks_.size(); ++p) {
          if (const auto& request = pending->second.requests[p]) all.push_back({ranks_[p], &*request});
        }
        broken_ = refusal(all).without_end();
        if (!broken_.is_any()) refuse(0, "has begun '" + requests[i]->name + "', which others ask for anew");
        return;
      }
      tell_agreed(requests[i]->name, &pending->second);
      std::erase(complete_, requests[i]->name);
      note_passes(requests[i]->name, pending->second);
      pending_.erase(pending);
      cache_.touch(batch.ids[i]);
    }
    for (Response& run : runs_of(batch.ids, requests, rules_)) responses->push_back(std::move(run));
  }
}

void Coordinator::on_join(size_t position) {
  has_joined_[position] = true;
  ++joined_count_;
  last_joined_ = ranks_[position];
  complete_without_absent();
}

// Completes operations that waited only for ranks that have joined. The join itself follows them.
void Coordinator::complete_without_absent() {
  if (joined_count_ == 0) return;
  std::vector<std::string> freed;
  for (const auto& [name, pending] : pending_) {
    if (!is_complete(pending)) continue;
    if (std::find(complete_.begin(), complete_.end(), name) == complete_.end()) freed.push_back(name);
  }
  std::sort(freed.begin(), freed.end());  // independent of the order of a hash table
  std::stable_partition(freed.begin(), freed.end(), [&](const std::string& name) { return !pending_.at(name).is_join; });
  complete_.insert(complete_.end(), freed.begin(), freed.end());
}

// Whether the operation waits for this rank. Only a join waits for a rank that has joined and owes no request.
bool Coordinator::is_missing(const Pending& pending, size_t position) const {
  if (!pending.requests[position]) return pending.is_join || !has_joined_[position] || owed_[position] != 0;
  return pending.is_join && owed_[position] != 0;
}

bool Coordinator::is_complete(const Pending& pending) const {
  if (joined_count_ == 0) return pending.count == ranks_.size();
  for (size_t position = 0; position < ranks_.size(); ++position) {
    if (is_missing(pending, position)) return false;
  }
  return true;
}

Failure Coordinator::refusal(const std::vector<RankRequest>& requests) const {
  const Request& first = *requests.front().request;
  if (first.operation == Operation::kTune) return disagreement(requests);  // also after a join
  const bool is_allreduce = first.operation == Operation::kAllreduce;
  if (requests.size() == ranks_.size() || is_allreduce) {
    Failure error = disagreement(requests);
    if (error.is_any() || requests.size() == ranks_.size() || has_neutral_element(first.op, first.prescale)) return error;
  }
  Facts facts{.tensor = first.name, .others = {{"operation", std::string(name_of(first.operation))}}};
  for (size_t position = 0; position < ranks_.size(); ++position) {
    if (has_joined_[position]) facts.ranks.push_back(ranks_[position]);
  }
  return {is_allreduce ? Said::product_after_join : Said::other_after_join, std::move(facts)};
}

// Adds the operation to `ready`, or returns its refusal.
std::optional<Response> Coordinator::refuse_or_accept(const std::string& name, std::vector<Ready>* ready,
                                                      std::vector<uint32_t>* forgotten) {
  const auto position = pending_.find(name);
  tell_agreed(name, &position->second);
  Pending pending = std::move(position->second);
  pending_.erase(position);
  note_passes(name, pending);
  std::vector<RankRequest> requests;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (pending.requests[i]) requests.push_back({ranks_[i], &*pending.requests[i]});
  }
  const bool is_completed = missing_.take_completed(name);
  const Request first = *requests.front().request;
  const uint32_t id = pending.ids.front();
  const bool all_by_id = id != 0 && cache_.request(id, 0) != nullptr &&
                         std::all_of(pending.ids.begin(), pending.ids.end(), [&](uint32_t other) { return other == id; });
  if (all_by_id) {
    cache_.touch(id);
    ready->push_back({{id, "", 0, {}, {}, is_completed}, first});
    return std::nullopt;
  }
  if (Failure error = refusal(requests); error.is_any()) {
    for (Listener* listener : listeners_) listener->on_refused(label_ + name);
    return Response{0, ResponseKind::kRefuse, {{0, name, 0, {}, {}}}, {}, std::move(error)};
  }
  Ready one{{0, name, 0, {}, {}, is_completed}, first};
  if (first.operation == Operation::kAllgather) one.item.rows = first_dimensions(requests);
  if (first.operation == Operation::kJoin) {
    one.item.rows.push_back(last_joined_);
    has_joined_.assign(ranks_.size(), false);
    joined_count_ = 0;
  } else if (first.operation == Operation::kTune) {
    one.item.request = first;
    if (requests.front().rank != ranks_.front()) one.item.request->text.clear();  // rank 0 has joined
    rules_.tune(one.item.request->text);
  } else if (requests.size() < ranks_.size()) {
    one.item.request = first;
  } else if (is_repeated(first.operation)) {
    std::vector<Request> all;
    for (auto& request : pending.requests) all.push_back(std::move(*request));
    one.item.assigned_id = cache_.remember(std::move(all), forgotten);
  }
  ready->push_back(std::move(one));
  return std::nullopt;
}

std::vector<Response> Coordinator::decide() {
  std::vector<Response> responses;
  if (is_over_) return responses;
  if (order_) refuse_out_of_order(&responses);
  answer_missing(&responses);
  answer_begun(&responses);
  // A batch that some ranks have begun comes before later requests.
  if (begun_.is_empty()) answer_complete(&responses);
  const std::optional<int> left = std::exchange(left_, std::nullopt);
  if (left && !begun_.is_empty() && !broken_.is_any()) {
    const std::string& name = cache_.request(begun_.first().ids.front(), 0)->name;
    broken_ = {Said::left_while_others_wait, {.tensor = name, .ranks = {*left}}};
  }
  is_over_ = broken_.is_any() || left;
  if (is_over_) {
    responses.push_back({0, ResponseKind::kShutdown, {}, {}, broken_});
  }
  return responses;
}

void Coordinator::answer_complete(std::vector<Response>* responses) {
  std::vector<Ready> ready;
  std::vector<uint32_t> forgotten;
  for (const std::string& name : complete_) {
    if (auto refusal = refuse_or_accept(name, &ready, &forgotten)) responses->push_back(std::move(*refusal));
  }
  complete_.clear();
  std::vector<const Request*> requests;
  for (const Ready& one : ready) requests.push_back(&one.request);
  for (const std::vector<size_t>& bucket : fuse(requests, rules_)) {
    Response& response = responses->emplace_back();
    for (const size_t i : bucket) response.items.push_back(std::move(ready[i].item));
  }
  // Last, since an item above may still use an id that is forgotten now.
  if (!forgotten.empty()) responses->push_back({0, ResponseKind::kForget, {}, std::move(forgotten), {}});
}

void Coordinator::on_missing(size_t position, const Request& request, TimePoint now) {
  std::vector<MissingGradients::Subject> about = subjects_of(request.text);
  std::vector<std::optional<uint32_t>> passed;
  const auto is_anchor = [](const MissingGradients::Subject& subject) { return subject.is_anchor; };
  if (const auto anchor = std::ranges::find_if(about, is_anchor); anchor != about.end()) {
    if (anchors_.size() > kMaxAnchors) anchors_.clear();  // of former models; anchors in use start from passes_ again
    const auto& passes = anchors_.try_emplace(anchor->name, passes_.begin(), passes_.end()).first->second;
    const bool is_lacking = std::ranges::count(about, anchor->name, &MissingGradients::Subject::name) > 1;
    if (!is_lacking && !pending_.contains(anchor->name)) passed = passes;
  }
  missing_.ask(position, request.name, std::move(about), passes_[position], std::move(passed), now);
}

void Coordinator::note_passes(const std::string& name, const Pending& complete) {
  if (const auto anchor = anchors_.find(name); anchor != anchors_.end()) anchor->second = complete.passes;
}

MissingGradients::Ranks Coordinator::ranks_for_missing() const {
  MissingGradients::Ranks ranks;
  ranks.has_joined = [this](size_t position) { return has_joined_[position] && owed_[position] == 0; };
  ranks.started = [this](const std::string& name) {
    const auto found = pending_.find(name);
    return found == pending_.end() ? nullptr : &found->second.passes;
  };
  ranks.latest_pass = [this](size_t position) { return passes_[position]; };
  return ranks;
}

// Must precede the answers to complete operations: these remove the record of the ranks that have started them.
void Coordinator::answer_missing(std::vector<Response>* responses) {
  if (missing_.is_empty()) return;
  for (MissingGradients::Answer& answer : missing_.answer(ranks_for_missing())) {
    Response& response = responses->emplace_back();
    response.kind = ResponseKind::kDecided;
    response.items.push_back({0, std::move(answer.question), 0, std::move(answer.decisions), {}});
  }
}

std::vector<MissingGradients::PassQuery> Coordinator::pass_queries() {
  if (missing_.is_empty()) return {};
  return missing_.pass_queries(ranks_for_missing());
}

std::vector<int> Coordinator::missing(size_t position, const std::string& name) {
  std::vector<int> ranks;
  if (const auto awaited = missing_.waits_for(name, ranks_for_missing())) {
    for (const size_t other : *awaited) ranks.push_back(ranks_[other]);
    return ranks;
  }
  const auto found = pending_.find(name);
  if (found == pending_.end() || !found->second.requests[position]) return ranks;
  for (size_t other = 0; other < ranks_.size(); ++other) {
    if (is_missing(found->second, other)) ranks.push_back(ranks_[other]);
  }
  return ranks;
}

std::vector<StalledOperation> Coordinator::incomplete(TimePoint now) const {
  std::vector<StalledOperation> all;
  for (const auto& [name, pending] : pending_) {
    if (pending.is_join) continue;  // ranks that have joined wait as long as the others work
    StalledOperation& one = all.emplace_back(StalledOperation{label_ + name, now - pending.since, {}});
    for (size_t position = 0; position < ranks_.size(); ++position) {
      if (is_missing(pending, position)) one.missing_ranks.push_back(ranks_[position]);
    }
  }
  const MissingGradients::Ranks ranks = ranks_for_missing();
  for (const auto& [name, since] : missing_.undecided()) {
    StalledOperation& one = all.emplace_back(StalledOperation{label_ + name, now - since, {}});
    for (const size_t position : missing_.silent_about(name, ranks)) one.missing_ranks.push_back(ranks_[position]);
  }
  return all;
}

}  // namespace hvd
