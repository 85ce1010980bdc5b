// Fusion: which agreed requests are carried out as one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "schedule/request.h"

namespace hvd {

struct FusionRules {
  int64_t threshold = 0;  // bytes; 0 = nothing is fused
  bool keep_groups_apart = false;

  void tune(const std::string& lines);  // see Settings::tune
};

// Whether they are allreduces (or reduce-scatters) of one dtype, reduction and codec, all on GPUs or none.
bool may_share_a_bucket(const Request& a, const Request& b);

// Indices into `ready`, bucket by bucket. Those that may share a bucket do so up to the threshold, also past others that do
// not match; everything else stays alone. Order is kept: a bucket runs at its first member's turn.
std::vector<std::vector<size_t>> fuse(std::span<const Request* const> ready, const FusionRules& rules);
// Of requests that are known by ids, and go together: the responses that they are carried out.
std::vector<Response> runs_of(std::span<const uint32_t> ids, std::span<const Request* const> requests,
                              const FusionRules& rules);

}  // namespace hvd
