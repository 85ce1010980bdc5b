// The response cache: gives ids to requests that all ranks agreed on, so that a repeated request takes 4 bytes to announce.
//
// The coordinator assigns and forgets ids in its responses, which all ranks carry out in the same order, so their mirrors are
// equal. Ids are never used again. If a rank announces an id that was just forgotten, it must announce the request in full.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <unordered_map>
#include <vector>

#include "schedule/request.h"

namespace hvd {

// The coordinator's side: the requests of each rank of a process set, with least-recently-used eviction.
class ResponseCache {
 public:
  explicit ResponseCache(int64_t capacity) : capacity_(capacity) {}

  // Remembers agreed requests, which are by position in the set. Appends evicted ids to `forgotten`. Returns the new id, or 0
  // if the capacity is 0.
  uint32_t remember(std::vector<Request> requests, std::vector<uint32_t>* forgotten);
  // The rank's request with this id; null if it is forgotten.
  const Request* request(uint32_t id, size_t position) const;
  void touch(uint32_t id);

 private:
  struct Entry {
    uint32_t id;
    std::vector<Request> requests;
  };
  void forget(std::list<Entry>::iterator entry, std::vector<uint32_t>* forgotten);

  const int64_t capacity_;
  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<uint32_t, std::list<Entry>::iterator> by_id_;
  std::unordered_map<std::string, uint32_t> by_name_;
  uint32_t last_id_ = 0;
};

// A rank's side: its own requests, and the rows that allgathers need.
class CacheMirror {
 public:
  struct Entry {
    Request request;
    std::vector<int64_t> rows;
  };

  void remember(uint32_t id, Entry entry);
  void forget(uint32_t id);
  // The id of an equal request; 0 if there is none.
  uint32_t id_of(const Request& request) const;
  const Entry& at(uint32_t id) const;

 private:
  std::unordered_map<uint32_t, Entry> by_id_;
  std::unordered_map<std::string, uint32_t> by_name_;
};

}  // namespace hvd
