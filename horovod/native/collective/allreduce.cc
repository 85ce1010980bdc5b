#include "collective/allreduce.h"

namespace hvd {
namespace {

// Below these, one round of everything beats two rounds of parts.
constexpr int64_t kSmallInMemory = 16 << 10;
constexpr int64_t kSmallByMessage = 4 << 10;

}  // namespace

std::string_view name_of(Route route) {
  constexpr std::string_view kNames[] = {"alone", "window gather", "window scatter", "exchange gather",
                                         "exchange scatter", "hierarchical gather", "hierarchical scatter"};
  return kNames[static_cast<int>(route)];
}

Route choose_route(const RouteFacts& facts) {
  if (facts.ranks == 1) return Route::kAlone;
  const bool is_small = facts.bytes <= (facts.shares_memory ? kSmallInMemory : kSmallByMessage);
  const bool gather = facts.is_encoded ? facts.ranks == 2 : is_small;
  if (facts.has_host_windows && facts.hosts > 1) {
    const bool gathers = facts.is_encoded ? facts.hosts == 2 : is_small;
    return gathers ? Route::kHierarchicalGather : Route::kHierarchicalScatter;
  }
  if (facts.shares_memory) return gather ? Route::kWindowGather : Route::kWindowScatter;
  return gather ? Route::kExchangeGather : Route::kExchangeScatter;
}

int64_t allreduce(CollectiveContext& context, std::span<const BucketTensor> tensors, const BucketReduction& reduction,
                  Route route) {
  switch (route) {
    case Route::kAlone:
      break;
    case Route::kWindowGather:
    case Route::kWindowScatter:
      return allreduce_through_window(context, tensors, reduction, route == Route::kWindowGather);
    case Route::kExchangeGather:
    case Route::kExchangeScatter:
      return allreduce_by_exchange(context, tensors, reduction, route == Route::kExchangeGather);
    case Route::kHierarchicalGather:
    case Route::kHierarchicalScatter:
      return allreduce_by_hierarchy(context, tensors, reduction, route == Route::kHierarchicalGather);
  }
  Bucket({tensors.begin(), tensors.end()}, reduction, context.simd, *context.tiles).reduce_alone();
  return 0;
}

}  // namespace hvd
