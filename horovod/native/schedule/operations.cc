#include "schedule/operations.h"

#include <vector>

namespace hvd {

Result Operations::carry_out(std::span<const Agreed> together, const OnPlan& on_plan) {
  const Agreed& first = together.front();
  switch (first.submission.request.operation) {
    case Operation::kAllreduce:
      for (const DType dtype : dtypes_in(together)) allreduce(together, dtype, on_plan);
      break;
    case Operation::kReducescatter:
      for (const DType dtype : dtypes_in(together)) reducescatter(together, dtype);
      break;
    case Operation::kAllgather:
      return allgather(first);
    case Operation::kBroadcast:
      return broadcast(first);
    case Operation::kAlltoall:
      return alltoall(first);
    default:
      break;  // all ranks have asked: that was the barrier, or whatever else the engine does itself
  }
  Result result;
  result.rows = first.rows;
  return result;
}

void Operations::allreduce(std::span<const Agreed> together, DType dtype, const OnPlan& on_plan) {
  const std::vector<BucketTensor> tensors = bench_.tensors_of(together, dtype);
  BucketReduction reduction = reduction_of(together.front().submission, dtype, bench_.context.group.size());
  bench_.counters.buckets += 1;
  if (reduction.op == ReduceOp::kAdasum) return backend_.adasum(tensors, reduction);
  const Plan plan = backend_.plan(tensors, reduction);
  if (!plan.is_encoded) reduction.codec = nullptr;
  HVD_LOG(bench_.surroundings.log, kDebug,
          "allreduce of " << tensors.size() << " tensors, " << count_of(tensors) * static_cast<int64_t>(size_of(dtype))
                          << " bytes on " << backend_.name() << ", codec "
                          << (reduction.codec ? reduction.codec->name() : "none") << ", route " << name_of(plan.route) << " ("
                          << explain(plan) << ")");
  on_plan(plan);
  backend_.allreduce(tensors, reduction, plan.route);
  bench_.count_dropped(together);
}

void Operations::reducescatter(std::span<const Agreed> together, DType dtype) {
  const BucketReduction reduction = reduction_of(together.front().submission, dtype, bench_.context.group.size());
  backend_.reducescatter(bench_.parts_of(together, dtype), reduction);
  bench_.counters.buckets += 1;
}

Result Operations::allgather(const Agreed& agreed) {
  const GatherLayout layout = gather_layout(agreed, bench_.ranks.size());
  Result result;
  result.rows = agreed.rows;
  result.bytes = layout.total;
  result.data = allocate_(layout.total);
  for (size_t t = 0; t < layout.bytes.size(); ++t) {
    backend_.move(hvd::allgather(agreed.submission.tensors[t].source, layout.bytes[t], bench_.context.group.rank(),
                                 result.data.get() + layout.offsets[t]));
  }
  return result;
}

Result Operations::broadcast(const Agreed& agreed) {
  const TensorRef& tensor = agreed.submission.tensors.front();
  const auto bytes = static_cast<size_t>(agreed.submission.request.bytes());
  const int root = bench_.root_of(agreed);
  if (bench_.context.group.rank() == root && tensor.destination != tensor.source && bytes != 0) {
    backend_.copy(tensor.destination, tensor.source, bytes);
  }
  backend_.broadcast(root, tensor.destination, bytes);
  Result result;
  result.rows = agreed.rows;
  return result;
}

Result Operations::alltoall(const Agreed& agreed) {
  const Submission& submission = agreed.submission;
  const int64_t bytes = submission.request.row_bytes_of(0);
  Result result;
  result.rows = exchange_splits(bench_.context, submission.splits);
  const std::vector<size_t> received = bytes_of(result.rows, bytes);
  result.bytes = sum(received);
  result.data = allocate_(result.bytes);
  backend_.move(
      hvd::alltoall(submission.tensors.front().source, bytes_of(submission.splits, bytes), received, result.data.get()));
  return result;
}

}  // namespace hvd
