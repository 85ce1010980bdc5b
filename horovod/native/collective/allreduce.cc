#include "collective/allreduce.h"

#include "base/error.h"

namespace hvd {
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
    case Route::kHierarchicalGather:
    case Route::kHierarchicalScatter:
      throw InternalError("the hierarchical route is not there");
  }
}

}  // namespace hvd
