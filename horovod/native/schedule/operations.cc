#include "schedule/operations.h"

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

#include "base/text.h"
#include "collective/integer_average.h"

namespace hvd {
namespace {

// The plan for tensors of one dtype. Removes the codec from the reduction if the plan does not encode.
Plan settled(const OperationContext& with, std::span<const BucketTensor> tensors, BucketReduction* reduction,
             Operation operation, const OnPlan& on_plan) {
  const PlanFacts facts = with.backend.facts(tensors, *reduction);
  const auto planned = operation == Operation::kAllreduce ? plan_allreduce : plan_reducescatter;
  Plan plan = planned(facts, with.backend.rules());
  if (!plan.is_encoded) reduction->codec = nullptr;
  HVD_LOG(with.context.engine.log, kDebug,
          name_of(operation) << " of " << tensors.size() << " tensors, " << facts.bytes << " bytes on " << with.backend.name()
                             << ", codec " << (reduction->codec ? reduction->codec->name() : "none") << ", route "
                             << name_of(plan.route) << " (" << explain(plan) << ")");
  on_plan(reduction->dtype, plan);
  return plan;
}

// Carries out an Average of integers. False if the reduction is another one.
bool averaged(const OperationContext& with, const Agreed& first, std::span<const BucketTensor> tensors,
              const BucketReduction& reduction, const OnPlan& on_plan) {
  if (!is_integer_average(first.submission.request.op, reduction.dtype, with.context.collective.group.size())) return false;
  with.backend.average_integers(tensors, reduction, [&](const Plan& plan) {
    HVD_LOG(with.context.engine.log, kDebug,
            "average of " << tensors.size() << " tensors of " << name_of(reduction.dtype) << " on " << with.backend.name()
                          << ", added as int64, route " << name_of(plan.route) << " (" << explain(plan) << ")");
    on_plan(reduction.dtype, plan);
  });
  return true;
}

void allreduce(const OperationContext& with, std::span<const Agreed> together, DType dtype, const OnPlan& on_plan) {
  const std::vector<BucketTensor> tensors = with.context.tensors_of(together, dtype);
  BucketReduction reduction = reduction_of(together.front().submission, dtype, with.context.collective.group.size());
  with.context.counters.buckets += 1;
  if (reduction.op == ReduceOp::kAdasum) return with.backend.adasum(tensors, reduction);
  if (averaged(with, together.front(), tensors, reduction, on_plan)) return;
  const Plan plan = settled(with, tensors, &reduction, Operation::kAllreduce, on_plan);
  with.backend.allreduce(tensors, reduction, plan.route);
  with.context.count_dropped(together);
}

void reducescatter(const OperationContext& with, std::span<const Agreed> together, DType dtype, const OnPlan& on_plan) {
  BucketReduction reduction = reduction_of(together.front().submission, dtype, with.context.collective.group.size());
  std::vector<std::vector<BucketTensor>> by_rank = with.context.parts_of(together, dtype);
  std::vector<BucketTensor> all;
  for (const std::vector<BucketTensor>& parts : by_rank) all.insert(all.end(), parts.begin(), parts.end());
  with.context.counters.buckets += 1;
  if (averaged(with, together.front(), all, reduction, on_plan)) return;
  const Plan plan = settled(with, all, &reduction, Operation::kReducescatter, on_plan);
  with.backend.reducescatter(std::move(by_rank), reduction, plan.route);
}

Result allgather(const OperationContext& with, const Agreed& agreed) {
  const GatherLayout layout = gather_layout(agreed, with.context.ranks.size());
  Result result;
  result.rows = agreed.rows;
  result.bytes = layout.total;
  result.data = with.allocate(layout.total);
  for (size_t t = 0; t < layout.bytes.size(); ++t) {
    with.backend.move(hvd::allgather(agreed.submission.tensors[t].source, layout.bytes[t], with.context.collective.group.rank(),
                                     result.data.get() + layout.offsets[t]));
  }
  return result;
}

Result broadcast(const OperationContext& with, const Agreed& agreed) {
  const TensorRef& tensor = agreed.submission.tensors.front();
  const auto bytes = static_cast<size_t>(agreed.submission.request.bytes());
  const int root = with.context.root_of(agreed);
  if (with.context.collective.group.rank() == root && tensor.destination != tensor.source && bytes != 0) {
    with.backend.copy(tensor.destination, tensor.source, bytes);
  }
  with.backend.broadcast(root, tensor.destination, bytes);
  Result result;
  result.rows = agreed.rows;
  return result;
}

Result alltoall(const OperationContext& with, const Agreed& agreed) {
  const Submission& submission = agreed.submission;
  const int64_t bytes = submission.request.row_bytes_of(0);
  Result result;
  result.rows = exchange_splits(with.context.collective, submission.splits);
  const std::vector<size_t> received = bytes_of(result.rows, bytes);
  result.bytes = sum(received);
  result.data = with.allocate(result.bytes);
  with.backend.move(
      hvd::alltoall(submission.tensors.front().source, bytes_of(submission.splits, bytes), received, result.data.get()));
  return result;
}

}  // namespace

Result run_operation(const OperationContext& with, std::span<const Agreed> together, const OnPlan& on_plan) {
  const Agreed& first = together.front();
  switch (first.submission.request.operation) {
    case Operation::kAllreduce:
      for (const DType dtype : dtypes_in(together)) allreduce(with, together, dtype, on_plan);
      break;
    case Operation::kReducescatter:
      for (const DType dtype : dtypes_in(together)) reducescatter(with, together, dtype, on_plan);
      break;
    case Operation::kAllgather:
      return allgather(with, first);
    case Operation::kBroadcast:
      return broadcast(with, first);
    case Operation::kAlltoall:
      return alltoall(with, first);
    default:
      break;  // barrier, join and the like need only the agreement
  }
  Result result;
  result.rows = first.rows;
  return result;
}

std::vector<ObservedOperation> observed(std::span<const Agreed> together, const std::string& label) {
  std::vector<ObservedOperation> all;
  for (const Agreed& agreed : together) {
    const Request& request = agreed.submission.request;
    const size_t members = request.shapes.size();
    const bool is_adasum = request.operation == Operation::kAllreduce && request.op == ReduceOp::kAdasum;
    for (size_t i = 0; i < std::max<size_t>(members, 1); ++i) {
      std::string name = label + request.name;
      if (members > 1) name += "_" + std::to_string(i + 1) + "of" + std::to_string(members);
      all.push_back({std::move(name), is_adasum ? "ADASUM" : name_of(request.operation),
                     members == 0 ? "" : name_of(request.dtypes[i]), members == 0 ? "" : to_text(request.shapes[i])});
      if (request.operation == Operation::kTune) all.back().settings = request.text;
    }
  }
  return all;
}

void note_route(std::span<ObservedOperation> operations, DType dtype, const Plan& plan) {
  for (ObservedOperation& operation : operations) {
    if (operation.dtype != name_of(dtype)) continue;
    operation.route = name_of(plan.route);
    operation.reason = explain(plan);
  }
}

std::string description_of(std::span<const Agreed> together) {
  int64_t bytes = 0;
  for (const Agreed& agreed : together) bytes += agreed.submission.request.bytes();
  const auto name = [](const Agreed& agreed) { return "'" + agreed.submission.request.name + "'"; };
  return first_few(together, 1, "others", name) + ", " + std::to_string(bytes) + " bytes";
}

Failure failed(const std::string& tensor, const std::string& description, int rank, const Failure& cause) {
  Failure failure(Said::operation_failed, {.others = {{"operation", description}, {"rank", rank}}}, cause);
  if (failure.facts.tensor.empty()) failure.facts.tensor = tensor;
  if (failure.facts.ranks.empty()) failure.facts.ranks = {rank};
  return failure;
}

std::string activity(Phase phase, const Request& request, const char* carrier) {
  const bool is_encoded = !request.codec.empty();
  switch (phase) {
    case Phase::kPack:
      return is_encoded ? "ENCODE" : "MEMCPY_IN_FUSION_BUFFER";
    case Phase::kReduce:
      return "REDUCE";
    case Phase::kUnpack:
      return is_encoded ? "DECODE" : "MEMCPY_OUT_FUSION_BUFFER";
    case Phase::kCommunicate:
      break;
  }
  std::string name = carrier;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  const bool is_adasum = request.operation == Operation::kAllreduce && request.op == ReduceOp::kAdasum;
  const bool is_broadcast = request.operation == Operation::kBroadcast;
  return name + "_" + (is_adasum ? "ADASUM_" : "") + (is_broadcast ? "BCAST" : std::string(name_of(request.operation)));
}

}  // namespace hvd
