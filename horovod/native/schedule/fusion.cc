#include "schedule/fusion.h"

#include "base/settings.h"

namespace hvd {
namespace {

bool is_reduction_of_one_dtype(const Request& r) {
  return (r.operation == Operation::kAllreduce || r.operation == Operation::kReducescatter) && r.has_one_dtype();
}

bool may_fuse(const Request& r, const FusionRules& rules) {
  const bool is_group = r.shapes.size() > 1;
  return is_reduction_of_one_dtype(r) && rules.threshold > 0 && !(is_group && rules.keep_groups_apart);
}

bool match(const Request& a, const Request& b) {
  return a.operation == b.operation && a.dtypes.front() == b.dtypes.front() && a.op == b.op && a.prescale == b.prescale &&
         a.postscale == b.postscale && a.codec == b.codec && a.on_gpu == b.on_gpu;
}

}  // namespace

void FusionRules::tune(const std::string& lines) {
  Settings settings;
  settings.fusion_threshold = threshold;
  settings.tune(lines);
  threshold = settings.fusion_threshold;
}

bool may_share_a_bucket(const Request& a, const Request& b) {
  return is_reduction_of_one_dtype(a) && is_reduction_of_one_dtype(b) && match(a, b);
}

std::vector<std::vector<size_t>> fuse(std::span<const Request* const> ready, const FusionRules& rules) {
  std::vector<std::vector<size_t>> buckets;
  // The open bucket of each kind of request. A list, since there are few kinds.
  struct Open {
    const Request* kind;
    size_t bucket;
    int64_t bytes;
  };
  std::vector<Open> open;
  for (size_t i = 0; i < ready.size(); ++i) {
    const Request& request = *ready[i];
    if (!may_fuse(request, rules)) {
      buckets.push_back({i});
      continue;
    }
    const int64_t bytes = request.bytes();
    Open* found = nullptr;
    for (Open& candidate : open) {
      if (match(*candidate.kind, request)) found = &candidate;
    }
    if (found && found->bytes + bytes <= rules.threshold) {
      buckets[found->bucket].push_back(i);
      found->bytes += bytes;
      continue;
    }
    buckets.push_back({i});
    const Open fresh{&request, buckets.size() - 1, bytes};
    if (found)
      *found = fresh;
    else
      open.push_back(fresh);
  }
  return buckets;
}

std::vector<Response> runs_of(std::span<const uint32_t> ids, std::span<const Request* const> requests,
                              const FusionRules& rules) {
  std::vector<Response> runs;
  for (const std::vector<size_t>& bucket : fuse(requests, rules)) {
    Response& run = runs.emplace_back();
    for (const size_t i : bucket) run.items.push_back({ids[i], "", 0, {}, {}});
  }
  return runs;
}

}  // namespace hvd
