#include "collective/allreduce.h"

namespace hvd {
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
