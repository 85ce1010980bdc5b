// Fusion of agreed requests into buckets, which are carried out as one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "schedule/request.h"

namespace hvd {

struct FusionRules {
  int64_t threshold = 0;  // bytes; 0 = no fusion
  bool keep_groups_apart = false;

  void tune(const std::string& lines);  // see Settings::tune
};

// Whether both are allreduces, or both reduce-scatters, of one dtype, reduction, codec and kind of memory.
bool may_share_a_bucket(const Request& a, const Request& b);

// Indices into `ready`, by bucket. Requests that may share a bucket do so up to the threshold, even if others are between them.
// Buckets are in the order of their first members.
std::vector<std::vector<size_t>> fuse(std::span<const Request* const> ready, const FusionRules& rules);
// The kRun responses for requests known by ids that are carried out together.
std::vector<Response> runs_of(std::span<const uint32_t> ids, std::span<const Request* const> requests,
                              const FusionRules& rules);

}  // namespace hvd
