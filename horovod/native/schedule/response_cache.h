// Requests that all ranks agreed on, remembered under a number, so that a repeated one costs 4 bytes to announce.
//
// The coordinator decides what is remembered and forgotten and says both in its responses. All ranks act on the responses in
// the same order, so their mirrors are alike by construction. Ids are never reused: when an announcement crosses the news
// of its id's end, the coordinator does not know the id, and has the rank ask again in full.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <unordered_map>
#include <vector>

#include "schedule/request.h"

namespace hvd {

// The coordinator's side: what each rank of a process set asked for, in least-recently-used order.
class ResponseCache {
 public:
  explicit ResponseCache(int64_t capacity) : capacity_(capacity) {}

  // Remembers agreed requests (by position in the set). Appends ids that had to go, for the response to tell. 0 if nothing is
  // remembered.
  uint32_t remember(std::vector<Request> requests, std::vector<uint32_t>* forgotten);
  // What a rank means by an id, or nothing if it has been forgotten.
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

// A rank's side: its own request and what a response needs to be carried out.
class CacheMirror {
 public:
  struct Entry {
    Request request;
    std::vector<int64_t> rows;
  };

  void remember(uint32_t id, Entry entry);
  void forget(uint32_t id);
  // The id under which exactly this request is remembered; 0 if none.
  uint32_t id_of(const Request& request) const;
  const Entry& at(uint32_t id) const;

 private:
  std::unordered_map<uint32_t, Entry> by_id_;
  std::unordered_map<std::string, uint32_t> by_name_;
};

}  // namespace hvd
