#include "schedule/executor.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>

#include "collective/allgather.h"
#include "collective/broadcast.h"

namespace hvd {
namespace {

BucketReduction reduction_of(const Submission& submission, int size) {
  const Request& request = submission.request;
  BucketReduction reduction;
  reduction.dtype = request.dtype;
  reduction.op = request.op;
  reduction.prescale = request.prescale;
  reduction.scale = {request.postscale, 1.0};
  if (request.op == ReduceOp::kAverage) {
    // A mean of truth values, truncated like every integer mean, is true when all are.
    const bool is_bool = request.dtype == DType::kBool;
    reduction.op = is_bool ? ReduceOp::kMin : ReduceOp::kSum;
    reduction.scale.divisor = is_bool ? 1.0 : static_cast<double>(size);
  }
  reduction.codec = submission.codec.get();
  return reduction;
}

// A group's members appear singly, as <name>_<i>of<n>.
std::vector<ObservedOperation> observed(std::span<const Agreed> together) {
  std::vector<ObservedOperation> all;
  for (const Agreed& agreed : together) {
    const Request& request = agreed.submission.request;
    const size_t members = request.shapes.size();
    for (size_t i = 0; i < std::max<size_t>(members, 1); ++i) {
      std::string name = request.name;
      if (members > 1) name += "_" + std::to_string(i + 1) + "of" + std::to_string(members);
      all.push_back({std::move(name), name_of(request.operation), name_of(request.dtype),
                     members == 0 ? "" : to_text(request.shapes[i])});
    }
  }
  return all;
}

}  // namespace

Executor::Executor(Transport& transport, SimdLevel simd, Counters& counters, const Log& log,
                   std::vector<Listener*> listeners)
    : counters_(counters),
      log_(log),
      listeners_(std::move(listeners)),
      context_{transport, simd, 0, 0, {}, {}, {}} {}

Result Executor::run(std::span<const Agreed> together) {
  using std::chrono::steady_clock;
  std::vector<ObservedOperation> watched;
  if (!listeners_.empty()) watched = observed(together);
  for (Listener* listener : listeners_) listener->on_start(watched, "COMMUNICATE");
  const auto start = steady_clock::now();
  Result result = carry_out(together);
  const auto elapsed = std::chrono::duration_cast<std::chrono::microseconds>(steady_clock::now() - start).count();
  counters_.collective_microseconds += elapsed;
  counters_.wire_bytes = context_.wire_bytes;
  for (const Agreed& agreed : together) {
    counters_.operations += static_cast<int64_t>(std::max<size_t>(agreed.submission.tensors.size(), 1));
  }
  for (Listener* listener : listeners_) listener->on_finish(watched);
  return result;
}

Result Executor::carry_out(std::span<const Agreed> together) {
  switch (together.front().submission.request.operation) {
    case Operation::kAllreduce:
      allreduce(together);
      break;
    case Operation::kAllgather:
      return allgather(together.front());
    case Operation::kBroadcast:
      broadcast(together.front());
      break;
    case Operation::kBarrier:
      break;  // all ranks have asked: that was the barrier
  }
  return {};
}

void Executor::allreduce(std::span<const Agreed> together) {
  std::vector<BucketTensor> tensors;
  for (const Agreed& agreed : together) {
    for (const TensorRef& tensor : agreed.submission.tensors) {
      tensors.push_back({tensor.source, tensor.destination, element_count(tensor.shape)});
    }
  }
  Transport& transport = context_.transport;
  const BucketReduction reduction = reduction_of(together.front().submission, transport.size());
  const size_t count = tensors.size();
  Bucket bucket(std::move(tensors), reduction, context_.simd);
  const int64_t bytes = bucket.count() * static_cast<int64_t>(size_of(reduction.dtype));
  const Route route =
      choose_route({transport.size(), transport.window() != nullptr, reduction.codec != nullptr, bytes});
  HVD_LOG(log_, kDebug, "allreduce of " << count << " tensors, " << bytes << " bytes, codec "
                                        << (reduction.codec ? reduction.codec->name() : "none") << ", route "
                                        << name_of(route));
  hvd::allreduce(context_, bucket, route);
  counters_.buckets += 1;
  counters_.tensor_bytes += bytes;
  counters_.saturated += bucket.saturated();
}

Result Executor::allgather(const Agreed& agreed) {
  const Request& request = agreed.submission.request;
  const Shape& shape = request.shapes.front();
  const int64_t row_elements = element_count({shape.begin() + 1, shape.end()});
  const int64_t row_bytes = row_elements * static_cast<int64_t>(size_of(request.dtype));
  std::vector<size_t> bytes;
  for (const int64_t rows : agreed.rows) bytes.push_back(static_cast<size_t>(rows * row_bytes));
  Result result;
  result.rows = agreed.rows;
  result.bytes = std::accumulate(bytes.begin(), bytes.end(), size_t{0});
  result.data.reset(new std::byte[result.bytes]);
  hvd::allgather(context_, agreed.submission.tensors.front().source, bytes, result.data.get());
  counters_.tensor_bytes += static_cast<int64_t>(bytes[static_cast<size_t>(context_.transport.rank())]);
  return result;
}

void Executor::broadcast(const Agreed& agreed) {
  const TensorRef& tensor = agreed.submission.tensors.front();
  const auto bytes = static_cast<size_t>(agreed.submission.request.bytes());
  const int root = agreed.submission.request.root;
  if (context_.transport.rank() == root && tensor.destination != tensor.source && bytes != 0) {
    std::memcpy(tensor.destination, tensor.source, bytes);
  }
  hvd::broadcast(context_, root, tensor.destination, bytes);
  counters_.tensor_bytes += static_cast<int64_t>(bytes);
}

}  // namespace hvd
