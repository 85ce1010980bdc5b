#include "schedule/response_cache.h"

#include "base/error.h"

namespace hvd {

uint32_t ResponseCache::remember(std::vector<Request> requests, std::vector<uint32_t>* forgotten) {
  if (capacity_ == 0) return 0;
  const std::string& name = requests.front().name;
  if (const auto old = by_name_.find(name); old != by_name_.end()) forget(by_id_.at(old->second), forgotten);
  while (static_cast<int64_t>(entries_.size()) >= capacity_) forget(std::prev(entries_.end()), forgotten);
  const uint32_t id = ++last_id_;
  by_name_[name] = id;
  entries_.push_front({id, std::move(requests)});
  by_id_[id] = entries_.begin();
  return id;
}

void ResponseCache::forget(std::list<Entry>::iterator entry, std::vector<uint32_t>* forgotten) {
  forgotten->push_back(entry->id);
  by_name_.erase(entry->requests.front().name);
  by_id_.erase(entry->id);
  entries_.erase(entry);
}

const Request* ResponseCache::request(uint32_t id, size_t position) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &found->second->requests[position];
}

void ResponseCache::touch(uint32_t id) {
  const auto found = by_id_.find(id);
  if (found != by_id_.end()) entries_.splice(entries_.begin(), entries_, found->second);
}

void CacheMirror::remember(uint32_t id, Entry entry) {
  by_name_[entry.request.name] = id;
  by_id_.emplace(id, std::move(entry));
}

void CacheMirror::forget(uint32_t id) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return;
  // The name may have a newer id.
  const auto named = by_name_.find(found->second.request.name);
  if (named != by_name_.end() && named->second == id) by_name_.erase(named);
  by_id_.erase(found);
}

uint32_t CacheMirror::id_of(const Request& request) const {
  const auto named = by_name_.find(request.name);
  if (named == by_name_.end()) return 0;
  return by_id_.at(named->second).request == request ? named->second : 0;
}

const CacheMirror::Entry& CacheMirror::at(uint32_t id) const {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) {
    const std::string what = "named request " + std::to_string(id) + ", unknown here";
    throw InternalError(Said::coordinator_wrong, {.others = {{"what", what}}});
  }
  return found->second;
}

}  // namespace hvd
