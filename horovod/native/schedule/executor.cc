#include "schedule/executor.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>

#include "base/cpu_time.h"
#include "collective/adasum.h"
#include "collective/allgather.h"
#include "collective/alltoall.h"
#include "collective/broadcast.h"
#include "collective/reducescatter.h"

namespace hvd {
namespace {

BucketReduction reduction_of(const Submission& submission, DType dtype, int size) {
  const Request& request = submission.request;
  BucketReduction reduction;
  reduction.dtype = dtype;
  reduction.op = request.op;
  reduction.prescale = request.prescale;
  reduction.scale = {request.postscale, 1.0};
  if (request.op == ReduceOp::kAverage) {
    // A mean of truth values, truncated like every integer mean, is true when all are.
    const bool is_bool = dtype == DType::kBool;
    reduction.op = is_bool ? ReduceOp::kMin : ReduceOp::kSum;
    reduction.scale.divisor = is_bool ? 1.0 : static_cast<double>(size);
  }
  if (is_float(dtype)) reduction.codec = submission.codec.get();
  return reduction;
}

// A group's members appear singly, as <name>_<i>of<n>.
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
    }
  }
  return all;
}

// What a collective's phase is called in a timeline, in Horovod's words where it has some.
std::string activity(Phase phase, const Request& request, const char* transport) {
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
  std::string name = transport;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  const bool is_adasum = request.operation == Operation::kAllreduce && request.op == ReduceOp::kAdasum;
  const bool is_broadcast = request.operation == Operation::kBroadcast;
  return name + "_" + (is_adasum ? "ADASUM_" : "") +
         (is_broadcast ? "BCAST" : std::string(name_of(request.operation)));
}

std::vector<size_t> bytes_of(std::span<const int64_t> rows, int64_t bytes_of_a_row) {
  std::vector<size_t> bytes;
  for (const int64_t count : rows) bytes.push_back(static_cast<size_t>(count * bytes_of_a_row));
  return bytes;
}

// The dtypes of a bucket, each once. Fused requests have one in common; only a group alone has several.
std::vector<DType> dtypes_in(std::span<const Agreed> together) {
  std::vector<DType> dtypes;
  for (const DType dtype : together.front().submission.request.dtypes) {
    if (std::find(dtypes.begin(), dtypes.end(), dtype) == dtypes.end()) dtypes.push_back(dtype);
  }
  return dtypes;
}

// What the choice of a route depends on.
RouteFacts facts_of(const RankGroup& group, std::span<const BucketTensor> tensors, const BucketReduction& reduction) {
  RouteFacts facts = {.ranks = group.size(),
                      .hosts = static_cast<int>(group.hosts().size()),
                      .carriers = carriers_of(group),
                      .shares_memory = group.window() != nullptr,
                      .has_host_windows = group.host_window() != nullptr,
                      .is_encoded = reduction.codec != nullptr};
  for (const std::vector<int>& host : group.hosts()) {
    facts.most_on_a_host = std::max(facts.most_on_a_host, static_cast<int>(host.size()));
  }
  for (const BucketTensor& tensor : tensors) {
    const int64_t bytes = tensor.count * static_cast<int64_t>(size_of(reduction.dtype));
    facts.bytes += bytes;
    facts.wire_bytes += reduction.codec ? reduction.codec->encoded_bytes(tensor.count) : bytes;
  }
  return facts;
}

size_t sum(const std::vector<size_t>& values) { return std::accumulate(values.begin(), values.end(), size_t{0}); }

// Rank r's rows of a reduce-scatter: the first `rows % size` ranks have one more.
Range rows_of(int64_t rows, int r, int size) {
  const int64_t each = rows / size, longer = rows % size;
  const int64_t begin = r * each + std::min<int64_t>(r, longer);
  return {begin, begin + each + (r < longer ? 1 : 0)};
}

}  // namespace

Executor::Executor(RankGroup group, std::vector<int> ranks, std::string label, SimdLevel simd, const RouteRules& route_rules,
                   Counters& counters, const Log& log, std::vector<Listener*> listeners)
    : ranks_(std::move(ranks)),
      label_(std::move(label)),
      route_rules_(route_rules),
      counters_(counters),
      log_(log),
      listeners_(std::move(listeners)),
      context_(std::move(group), simd) {}

Result Executor::run(std::span<const Agreed> together) {
  std::vector<Listener*> listening;
  std::copy_if(listeners_.begin(), listeners_.end(), std::back_inserter(listening),
               [](const Listener* listener) { return listener->is_listening(); });
  std::vector<ObservedOperation> watched;
  if (!listening.empty()) {
    watched = observed(together, label_);
    context_.on_phase = [&, last = std::string()](Phase phase) mutable {
      std::string now = activity(phase, together.front().submission.request, context_.group.transport_name());
      if (now == last) return;
      last = std::move(now);
      for (Listener* listener : listening) listener->on_activity(watched, last);
    };
  }
  for (Listener* listener : listening) listener->on_start(watched);
  const auto start = std::chrono::steady_clock::now();
  const auto cpu_start = cpu_time_of_this_thread();
  Result result = carry_out(together);
  count(together, start, cpu_start);
  for (Listener* listener : listening) listener->on_finish(watched);
  context_.on_phase = nullptr;
  return result;
}

void Executor::count(std::span<const Agreed> together, std::chrono::steady_clock::time_point start,
                     std::chrono::nanoseconds cpu_start) {
  using std::chrono::duration_cast, std::chrono::microseconds;
  counters_.collective_microseconds += duration_cast<microseconds>(std::chrono::steady_clock::now() - start).count();
  counters_.collective_cpu_microseconds += duration_cast<microseconds>(cpu_time_of_this_thread() - cpu_start).count();
  counters_.wire_bytes = context_.wire_bytes;
  for (const Agreed& agreed : together) {
    const Submission& submission = agreed.submission;
    counters_.operations += static_cast<int64_t>(std::max<size_t>(submission.tensors.size(), 1));
    counters_.tensor_bytes += submission.request.bytes();
    if (submission.handle != 0) {
      counters_.waiting_microseconds += duration_cast<microseconds>(start - submission.submitted).count();
    }
  }
}

Result Executor::carry_out(std::span<const Agreed> together) {
  switch (together.front().submission.request.operation) {
    case Operation::kAllreduce:
      for (const DType dtype : dtypes_in(together)) allreduce(together, dtype);
      break;
    case Operation::kReducescatter:
      for (const DType dtype : dtypes_in(together)) reducescatter(together, dtype);
      break;
    case Operation::kAllgather:
      return allgather(together.front());
    case Operation::kBroadcast:
      broadcast(together.front());
      break;
    case Operation::kAlltoall:
      return alltoall(together.front());
    default:
      break;  // all ranks have asked: that was the barrier, or whatever else the engine does itself
  }
  return {together.front().rows, nullptr, 0};
}

std::vector<std::pair<BucketTensor, size_t>> Executor::tensors_of(const Agreed& agreed, DType dtype) {
  const Submission& submission = agreed.submission;
  const std::string& name = submission.request.name;
  const bool draws = submission.codec && submission.codec->is_stochastic();
  const uint64_t operation_key = draws ? draw_keys_.next(name) : 0;
  std::vector<std::pair<BucketTensor, size_t>> all;
  for (size_t t = 0; t < submission.tensors.size(); ++t) {
    const TensorRef& tensor = submission.tensors[t];
    if (tensor.dtype != dtype) continue;
    BucketTensor member{.source = tensor.source, .destination = tensor.destination, .count = element_count(tensor.shape)};
    member.feedback = tensor.feedback.get();
    if (draws) {
      // Feedback counts for itself, and goes into checkpoints: resumed training draws as if it had never stopped.
      const uint64_t key = mixed(member.feedback ? draw_key(name, member.feedback->uses++) : operation_key, t);
      member.sent_key = mixed(mixed(key, static_cast<uint64_t>(Stage::kSent)), static_cast<uint64_t>(context_.group.rank()));
      member.result_key = mixed(key, static_cast<uint64_t>(Stage::kResult));
    }
    all.emplace_back(member, t);
  }
  return all;
}

void Executor::allreduce(std::span<const Agreed> together, DType dtype) {
  std::vector<BucketTensor> tensors;
  for (const Agreed& agreed : together) {
    for (const auto& [tensor, t] : tensors_of(agreed, dtype)) tensors.push_back(tensor);
  }
  const RankGroup& group = context_.group;
  BucketReduction reduction = reduction_of(together.front().submission, dtype, group.size());
  counters_.buckets += 1;
  if (reduction.op == ReduceOp::kAdasum) return adasum(context_, tensors, reduction);
  const RouteFacts facts = facts_of(group, tensors, reduction);
  const RouteChoice choice = choose_route(facts, route_rules_);
  if (!choice.is_encoded) reduction.codec = nullptr;
  HVD_LOG(log_, kDebug, "allreduce of " << tensors.size() << " tensors, " << facts.bytes << " bytes, codec "
                                        << (reduction.codec ? reduction.codec->name() : "none") << ", route "
                                        << name_of(choice.route) << " (" << explain(facts, route_rules_, choice) << ")");
  for (Listener* listener : listeners_) {
    if (listener->is_listening()) listener->on_route(name_of(choice.route), explain(facts, route_rules_, choice));
  }
  counters_.saturated += hvd::allreduce(context_, tensors, reduction, choice.route);
  count_dropped(together);
}

void Executor::count_dropped(std::span<const Agreed> together) {
  for (const Agreed& agreed : together) {
    for (const TensorRef& tensor : agreed.submission.tensors) {
      const int64_t dropped = tensor.feedback ? tensor.feedback->take_dropped() : 0;
      if (dropped == 0) continue;
      counters_.residuals_dropped += dropped;
      HVD_LOG(log_, kInfo, "'" << agreed.submission.request.name << "': error feedback of " << dropped
                               << " elements begins anew, as other ranks encode them now");
    }
  }
}

void Executor::reducescatter(std::span<const Agreed> together, DType dtype) {
  const int size = context_.group.size();
  const BucketReduction reduction = reduction_of(together.front().submission, dtype, size);
  std::vector<std::vector<BucketTensor>> by_rank(static_cast<size_t>(size));
  for (const Agreed& agreed : together) {
    for (const auto& [tensor, t] : tensors_of(agreed, dtype)) {
      const int64_t row = agreed.submission.request.row_bytes_of(t) / static_cast<int64_t>(size_of(dtype));
      for (int r = 0; r < size; ++r) {
        const Range rows = rows_of(agreed.submission.tensors[t].shape[0], r, size);
        BucketTensor part = tensor;
        part.offset = rows.begin * row;
        part.count = rows.count() * row;
        part.source = static_cast<const std::byte*>(tensor.source) + part.offset * static_cast<int64_t>(size_of(dtype));
        if (r != context_.group.rank()) part.destination = nullptr;
        by_rank[static_cast<size_t>(r)].push_back(part);
      }
    }
  }
  std::vector<std::unique_ptr<Bucket>> slices;
  for (std::vector<BucketTensor>& parts : by_rank) {
    slices.push_back(std::make_unique<Bucket>(std::move(parts), reduction, context_.simd, *context_.tiles));
  }
  counters_.saturated += hvd::reducescatter(context_, std::move(slices));
  counters_.buckets += 1;
}

Result Executor::allgather(const Agreed& agreed) {
  const Request& request = agreed.submission.request;
  const auto size = static_cast<size_t>(context_.group.size());
  std::vector<std::vector<size_t>> bytes;  // by tensor, by rank
  std::vector<size_t> offsets;             // of each tensor in the result
  Result result;
  result.rows = agreed.rows;
  for (size_t t = 0; t < request.shapes.size(); ++t) {
    bytes.push_back(bytes_of({agreed.rows.data() + t * size, size}, request.row_bytes_of(t)));
    offsets.push_back(padded(result.bytes));
    result.bytes = offsets.back() + sum(bytes.back());
  }
  result.data.reset(new std::byte[result.bytes]);
  for (size_t t = 0; t < bytes.size(); ++t) {
    hvd::allgather(context_, agreed.submission.tensors[t].source, bytes[t], result.data.get() + offsets[t]);
  }
  return result;
}

void Executor::broadcast(const Agreed& agreed) {
  const TensorRef& tensor = agreed.submission.tensors.front();
  const auto bytes = static_cast<size_t>(agreed.submission.request.bytes());
  const auto root = std::lower_bound(ranks_.begin(), ranks_.end(), agreed.submission.request.root) - ranks_.begin();
  if (context_.group.rank() == root && tensor.destination != tensor.source && bytes != 0) {
    std::memcpy(tensor.destination, tensor.source, bytes);
  }
  hvd::broadcast(context_, static_cast<int>(root), tensor.destination, bytes);
}

Result Executor::alltoall(const Agreed& agreed) {
  const Submission& submission = agreed.submission;
  const int64_t bytes = submission.request.row_bytes_of(0);
  Result result;
  result.rows = exchange_splits(context_, submission.splits);
  const std::vector<size_t> received = bytes_of(result.rows, bytes);
  result.bytes = sum(received);
  result.data.reset(new std::byte[result.bytes]);
  hvd::alltoall(context_, submission.tensors.front().source, bytes_of(submission.splits, bytes), received,
                result.data.get());
  return result;
}

}  // namespace hvd
