#include "collective/allreduce.h"

namespace hvd {
namespace {

// Below these, one round of everything beats two rounds of parts.
constexpr int64_t kSmallInMemory = 16 << 10;
constexpr int64_t kSmallByMessage = 4 << 10;

}  // namespace

std::string_view name_of(Route route) {
  constexpr std::string_view kNames[] = {"alone", "window gather", "window scatter", "exchange gather",
                                         "exchange scatter"};
  return kNames[static_cast<int>(route)];
}

Route choose_route(const RouteFacts& facts) {
  if (facts.ranks == 1) return Route::kAlone;
  const bool is_small = facts.bytes <= (facts.shares_memory ? kSmallInMemory : kSmallByMessage);
  const bool gather = facts.is_encoded ? facts.ranks == 2 : is_small;
  if (facts.shares_memory) return gather ? Route::kWindowGather : Route::kWindowScatter;
  return gather ? Route::kExchangeGather : Route::kExchangeScatter;
}

void allreduce(CollectiveContext& context, Bucket& bucket, Route route) {
  switch (route) {
    case Route::kAlone:
      return bucket.reduce_alone();
    case Route::kWindowGather:
    case Route::kWindowScatter:
      return allreduce_through_window(context, bucket, route == Route::kWindowGather);
    case Route::kExchangeGather:
    case Route::kExchangeScatter:
      return allreduce_by_exchange(context, bucket, route == Route::kExchangeGather);
  }
}

}  // namespace hvd
