// Rank 0's account of who has asked for what. No threads, no clock, no transport: announcements in, verdicts out.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "observe/listener.h"
#include "schedule/fusion.h"
#include "schedule/request.h"
#include "schedule/response_cache.h"

namespace hvd {

class Coordinator {
 public:
  Coordinator(int size, int64_t cache_capacity, FusionRules rules, std::vector<Listener*> listeners);

  // Returns ids that the rank must announce again in full.
  std::vector<uint32_t> hear(int rank, const Announcement& announcement);
  // Verdicts on all that has become ready since, in the order in which every rank must carry them out.
  std::vector<Verdict> decide();

 private:
  struct Pending {
    std::vector<std::optional<Request>> requests;  // by rank
    std::vector<uint32_t> ids;                     // by rank: how it was announced, 0 = in full
    size_t count = 0;
  };
  struct Ready {
    Item item;
    Request request;
  };

  void hear_request(int rank, const Request& request, uint32_t id);
  std::optional<Verdict> refuse_or_accept(const std::string& name, std::vector<Ready>* ready,
                                          std::vector<uint32_t>* forgotten);

  // Constant after construction.
  const size_t size_;
  const FusionRules rules_;
  const std::vector<Listener*> listeners_;

  ResponseCache cache_;
  std::unordered_map<std::string, Pending> pending_;
  std::vector<std::string> complete_;  // names all ranks have asked for, in that order
  bool somebody_left_ = false;
};

}  // namespace hvd
