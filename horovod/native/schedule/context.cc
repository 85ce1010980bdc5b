#include "schedule/context.h"

#include <algorithm>
#include <numeric>

#include "base/process.h"

namespace hvd {
namespace {

// Rank r's rows of a reduce-scatter. The first `rows % size` ranks have one row more.
Range rows_of(int64_t rows, int r, int size) {
  const int64_t each = rows / size, longer = rows % size;
  const int64_t begin = r * each + std::min<int64_t>(r, longer);
  return {begin, begin + each + (r < longer ? 1 : 0)};
}

PlanRules plan_rules_of(const EngineContext& s) {
  return {algorithms_named(s.settings.allreduce_algorithm),
          s.settings.deterministic,
          {s.settings.deterministic ? LinkCosts() : s.transport.links(), {}}};
}

MessageRules message_rules_of(const Settings& settings) {
  return {settings.message_kb << 10, static_cast<uint32_t>(settings.steps_under_way), static_cast<int>(settings.carriers)};
}

// Mixes two numbers into one that looks random.
constexpr uint64_t mixed(uint64_t a, uint64_t b) {
  uint64_t x = a + 0x9E3779B97F4A7C15u * (b + 1);  // the finaliser of SplitMix64 (Steele, Lea, Flood 2014)
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// The key of reduction number `use` of `name`.
uint64_t draw_key(const std::string& name, uint64_t use) {
  uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a: std::hash may differ by build
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return mixed(hash, use);
}

}  // namespace

uint64_t DrawKeys::next(const std::string& name) {
  if (uses_.size() >= kMostNames && uses_.count(name) == 0) {
    uses_.clear();
    ++epoch_;
  }
  return mixed(draw_key(name, uses_[name]++), epoch_);
}

void ExecutorContext::tune() {
  plan_rules.algorithms = algorithms_named(engine.settings.allreduce_algorithm);
  collective.messages = message_rules_of(engine.settings);
}

BucketReduction reduction_of(const Submission& submission, DType dtype, int size) {
  const Request& request = submission.request;
  BucketReduction reduction;
  reduction.dtype = dtype;
  reduction.op = request.op;
  reduction.prescale = request.prescale;
  reduction.scale = {request.postscale, 1.0};
  if (request.op == ReduceOp::kAverage) {
    // The mean of truth values, truncated like an integer mean, is true only if all values are.
    const bool is_bool = dtype == DType::kBool;
    reduction.op = is_bool ? ReduceOp::kMin : ReduceOp::kSum;
    reduction.scale.divisor = is_bool ? 1.0 : static_cast<double>(size);
  }
  if (is_float(dtype)) reduction.codec = submission.codec.get();
  return reduction;
}

std::vector<std::pair<BucketTensor, size_t>> bucket_tensors_of(const Submission& submission, DType dtype, int rank,
                                                               DrawKeys& draw_keys) {
  const std::string& name = submission.request.name;
  const bool draws = submission.codec && submission.codec->is_stochastic();
  const uint64_t operation_key = draws ? draw_keys.next(name) : 0;
  std::vector<std::pair<BucketTensor, size_t>> all;
  for (size_t t = 0; t < submission.tensors.size(); ++t) {
    const TensorRef& tensor = submission.tensors[t];
    if (tensor.dtype != dtype) continue;
    BucketTensor member{.source = tensor.source, .destination = tensor.destination, .witness = tensor.witness};
    member.count = element_count(tensor.shape);
    member.feedback = tensor.feedback.get();
    if (draws) {
      // Feedback has its own count, which is in checkpoints. So resumed training draws the same numbers, even if an optimizer
      // with another suffix resumes it.
      const std::string of_parameter = name.substr(0, name.find('#'));
      const uint64_t key = mixed(member.feedback ? draw_key(of_parameter, member.feedback->uses++) : operation_key, t);
      member.sent_key = mixed(mixed(key, static_cast<uint64_t>(Stage::kSent)), static_cast<uint64_t>(rank));
      member.result_key = mixed(key, static_cast<uint64_t>(Stage::kResult));
    }
    all.emplace_back(member, t);
  }
  return all;
}

std::vector<DType> dtypes_in(std::span<const Agreed> together) {
  std::vector<DType> dtypes;
  for (const DType dtype : together.front().submission.request.dtypes) {
    if (std::find(dtypes.begin(), dtypes.end(), dtype) == dtypes.end()) dtypes.push_back(dtype);
  }
  return dtypes;
}

std::vector<size_t> bytes_of(std::span<const int64_t> rows, int64_t bytes_of_a_row) {
  std::vector<size_t> bytes;
  for (const int64_t count : rows) bytes.push_back(static_cast<size_t>(count * bytes_of_a_row));
  return bytes;
}

size_t sum(const std::vector<size_t>& values) { return std::accumulate(values.begin(), values.end(), size_t{0}); }

GatherLayout gather_layout(const Agreed& agreed, size_t ranks) {
  const Request& request = agreed.submission.request;
  GatherLayout layout;
  for (size_t t = 0; t < request.shapes.size(); ++t) {
    layout.bytes.push_back(bytes_of({agreed.rows.data() + t * ranks, ranks}, request.row_bytes_of(t)));
    layout.offsets.push_back(padded(layout.total));
    layout.total = layout.offsets.back() + sum(layout.bytes.back());
  }
  return layout;
}

ExecutorContext::ExecutorContext(const EngineContext& shared, std::vector<int> members, std::string prefix, Counters& counts)
    : engine(shared),
      ranks(std::move(members)),
      label(std::move(prefix)),
      plan_rules(plan_rules_of(shared)),
      counters(counts),
      collective(RankGroup(shared.transport, ranks), shared.simd) {
  collective.messages = message_rules_of(engine.settings);
}

std::vector<BucketTensor> ExecutorContext::tensors_of(std::span<const Agreed> together, DType dtype) {
  std::vector<BucketTensor> tensors;
  const int rank = collective.group.rank();
  for (const Agreed& agreed : together) {
    for (const auto& [tensor, t] : bucket_tensors_of(agreed.submission, dtype, rank, draw_keys)) {
      tensors.push_back(tensor);
    }
  }
  return tensors;
}

std::vector<std::vector<BucketTensor>> ExecutorContext::parts_of(std::span<const Agreed> together, DType dtype) {
  const int size = collective.group.size(), rank = collective.group.rank();
  std::vector<std::vector<BucketTensor>> by_rank(static_cast<size_t>(size));
  for (const Agreed& agreed : together) {
    for (const auto& [tensor, t] : bucket_tensors_of(agreed.submission, dtype, rank, draw_keys)) {
      const int64_t row = agreed.submission.request.row_bytes_of(t) / static_cast<int64_t>(size_of(dtype));
      for (int r = 0; r < size; ++r) {
        const Range rows = rows_of(agreed.submission.tensors[t].shape[0], r, size);
        BucketTensor part = tensor;
        part.offset = rows.begin * row;
        part.count = rows.count() * row;
        part.source = static_cast<const std::byte*>(tensor.source) + part.offset * static_cast<int64_t>(size_of(dtype));
        if (r != rank) part.destination = nullptr;
        by_rank[static_cast<size_t>(r)].push_back(part);
      }
    }
  }
  return by_rank;
}

int ExecutorContext::root_of(const Agreed& agreed) const {
  return static_cast<int>(std::lower_bound(ranks.begin(), ranks.end(), agreed.submission.request.root) - ranks.begin());
}

std::vector<Listener*> ExecutorContext::listening() const {
  std::vector<Listener*> some;
  std::copy_if(engine.listeners.begin(), engine.listeners.end(), std::back_inserter(some),
               [](const Listener* listener) { return listener->is_listening(); });
  return some;
}

void ExecutorContext::count_dropped(std::span<const Agreed> together) {
  for (const Agreed& agreed : together) {
    for (const TensorRef& tensor : agreed.submission.tensors) {
      const int64_t dropped = tensor.feedback ? tensor.feedback->take_dropped() : 0;
      if (dropped == 0) continue;
      counters.residuals_dropped += dropped;
      HVD_LOG(engine.log, kInfo,
              "'" << agreed.submission.request.name << "': error feedback of " << dropped
                  << " elements begins anew, as other ranks encode them now");
    }
  }
}

void ExecutorContext::count(std::span<const Agreed> together, std::chrono::steady_clock::time_point start,
                            std::chrono::nanoseconds cpu_start) {
  using std::chrono::duration_cast, std::chrono::microseconds;
  counters.collective_microseconds += duration_cast<microseconds>(std::chrono::steady_clock::now() - start).count();
  counters.collective_cpu_microseconds += duration_cast<microseconds>(cpu_time_of_this_thread() - cpu_start).count();
  counters.wire_bytes = collective.wire_bytes;
  for (const Agreed& agreed : together) {
    const Submission& submission = agreed.submission;
    counters.operations += static_cast<int64_t>(std::max<size_t>(submission.tensors.size(), 1));
    counters.tensor_bytes += submission.request.bytes();
    if (submission.handle != 0) {
      counters.waiting_microseconds += duration_cast<microseconds>(start - submission.submitted).count();
    }
  }
}

}  // namespace hvd
