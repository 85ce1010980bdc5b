#include "schedule/operations.h"

#include <vector>

#include "collective/alltoall.h"

namespace hvd {

Result Operations::carry_out(std::span<const Agreed> together) {
  const Agreed& first = together.front();
  switch (first.submission.request.operation) {
    case Operation::kAllreduce:
      for (const DType dtype : dtypes_in(together)) allreduce(together, dtype);
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

Result Operations::allgather(const Agreed& agreed) {
  const GatherLayout layout = gather_layout(agreed, bench_.ranks.size());
  Result result;
  result.rows = agreed.rows;
  result.bytes = layout.total;
  result.data = allocate(layout.total);
  for (size_t t = 0; t < layout.bytes.size(); ++t) {
    allgather(agreed.submission.tensors[t].source, layout.bytes[t], result.data.get() + layout.offsets[t]);
  }
  return result;
}

Result Operations::broadcast(const Agreed& agreed) {
  const TensorRef& tensor = agreed.submission.tensors.front();
  const auto bytes = static_cast<size_t>(agreed.submission.request.bytes());
  const int root = bench_.root_of(agreed);
  if (bench_.context.group.rank() == root && tensor.destination != tensor.source && bytes != 0) {
    copy(tensor.destination, tensor.source, bytes);
  }
  broadcast(root, tensor.destination, bytes);
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
  result.data = allocate(result.bytes);
  alltoall(submission.tensors.front().source, bytes_of(submission.splits, bytes), received, result.data.get());
  return result;
}

}  // namespace hvd
