#include "schedule/coordinator.h"

#include <algorithm>

#include "schedule/agreement.h"

namespace hvd {

Coordinator::Coordinator(int size, int64_t cache_capacity, FusionRules rules, std::vector<Listener*> listeners)
    : size_(static_cast<size_t>(size)), rules_(rules), listeners_(std::move(listeners)), cache_(cache_capacity) {}

std::vector<uint32_t> Coordinator::hear(int rank, const Announcement& announcement) {
  std::vector<uint32_t> unknown;
  for (const uint32_t id : announcement.ids) {
    if (const Request* request = cache_.request(id, rank)) {
      hear_request(rank, *request, id);
    } else {
      unknown.push_back(id);
    }
  }
  for (const Request& request : announcement.requests) hear_request(rank, request, 0);
  somebody_left_ |= announcement.is_leaving;
  return unknown;
}

void Coordinator::hear_request(int rank, const Request& request, uint32_t id) {
  Pending& pending = pending_[request.name];
  if (pending.requests.empty()) {
    pending.requests.resize(size_);
    pending.ids.resize(size_, 0);
  }
  const auto r = static_cast<size_t>(rank);
  for (Listener* listener : listeners_) listener->on_rank_ready(request.name, name_of(request.operation), rank);
  pending.requests[r] = request;
  pending.ids[r] = id;
  if (++pending.count == size_) complete_.push_back(request.name);
}

// Either adds to `ready`, or returns the refusal.
std::optional<Verdict> Coordinator::refuse_or_accept(const std::string& name, std::vector<Ready>* ready,
                                                     std::vector<uint32_t>* forgotten) {
  const auto position = pending_.find(name);
  Pending pending = std::move(position->second);
  pending_.erase(position);
  const Operation operation = pending.requests.front()->operation;
  for (Listener* listener : listeners_) listener->on_agreed(name, name_of(operation));

  const uint32_t id = pending.ids.front();
  const bool all_by_id = id != 0 && cache_.request(id, 0) != nullptr &&
                         std::all_of(pending.ids.begin(), pending.ids.end(), [&](uint32_t other) { return other == id; });
  if (all_by_id) {
    cache_.touch(id);
    ready->push_back({{id, "", 0, {}}, std::move(*pending.requests.front())});
    return std::nullopt;
  }
  std::vector<Request> requests;
  for (auto& request : pending.requests) requests.push_back(std::move(*request));
  if (std::string error = disagreement(requests); !error.empty()) {
    return Verdict{VerdictKind::kRefuse, {{0, name, 0, {}}}, {}, std::move(error)};
  }
  Ready one{{0, name, 0, {}}, requests.front()};
  if (operation == Operation::kAllgather) {
    for (const Request& request : requests) one.item.rows.push_back(request.shapes[0][0]);
  }
  if (operation != Operation::kBarrier) one.item.assigned_id = cache_.remember(std::move(requests), forgotten);
  ready->push_back(std::move(one));
  return std::nullopt;
}

std::vector<Verdict> Coordinator::decide() {
  std::vector<Verdict> verdicts;
  std::vector<Ready> ready;
  std::vector<uint32_t> forgotten;
  for (const std::string& name : complete_) {
    if (auto refusal = refuse_or_accept(name, &ready, &forgotten)) verdicts.push_back(std::move(*refusal));
  }
  complete_.clear();
  std::vector<const Request*> requests;
  for (const Ready& one : ready) requests.push_back(&one.request);
  for (const std::vector<size_t>& bucket : fuse(requests, rules_)) {
    Verdict& verdict = verdicts.emplace_back();
    for (const size_t i : bucket) verdict.items.push_back(std::move(ready[i].item));
  }
  // Last, since an item above may still be named by an id that had to go.
  if (!forgotten.empty()) verdicts.push_back({VerdictKind::kForget, {}, std::move(forgotten), ""});
  if (somebody_left_) {
    verdicts.push_back({VerdictKind::kShutdown, {}, {}, ""});
    somebody_left_ = false;
  }
  return verdicts;
}

}  // namespace hvd
